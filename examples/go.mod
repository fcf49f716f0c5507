module github.com/settle-go/settle/examples

go 1.26

require github.com/settle-go/settle v0.0.0

require (
	github.com/google/uuid v1.6.0 // indirect
	github.com/shopspring/decimal v1.6.0 // indirect
)

replace github.com/settle-go/settle => ../
