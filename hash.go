package settle

// Fingerprint binds an operation to its request.
type Fingerprint struct {
	Rule     string
	Volatile []string
	Sum      string
}
