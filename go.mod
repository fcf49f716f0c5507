module github.com/settle-go/settle

go 1.26

require (
	github.com/DATA-DOG/go-sqlmock v1.5.2 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/shopspring/decimal v1.6.0 // indirect
	github.com/stretchr/testify v1.12.1 // indirect
)
