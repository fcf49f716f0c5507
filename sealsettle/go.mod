module github.com/settle-go/settle/sealsettle

go 1.26

require (
	github.com/settle-go/settle v0.0.0
	github.com/tink-crypto/tink-go/v2 v2.9.0
)

require (
	github.com/google/uuid v1.6.0 // indirect
	github.com/shopspring/decimal v1.6.0 // indirect
	golang.org/x/crypto v0.53.0 // indirect
	golang.org/x/sys v0.46.0 // indirect
	google.golang.org/protobuf v1.36.11 // indirect
)

replace github.com/settle-go/settle => ../
