module github.com/settle-go/settle/stdwebhook

go 1.26.0

require (
	github.com/settle-go/settle v0.0.0
	github.com/standard-webhooks/standard-webhooks/libraries v0.0.1
)

require (
	github.com/google/uuid v1.6.0 // indirect
	github.com/shopspring/decimal v1.6.0 // indirect
)

replace github.com/settle-go/settle => ../
