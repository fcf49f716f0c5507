// Package httpsettle puts settle behind HTTP and HTTP behind settle.
//
// # Server
//
// [NewHandler] makes an [http.Handler] of one executor. It follows the Idempotency-Key draft
// (draft-ietf-httpapi-idempotency-key-header-07): the key is a structured-field string (RFC 9651), 400 when it is missing or
// malformed, 409 while the first request is in progress, 422 when it comes with another request.
// Problems are RFC 9457 problem details whose type says what is safe to do next. An operation that is not
// settled is 202 with Location and Retry-After; its status is a resource to poll, or to wait on with Prefer: wait=n (RFC 7240).
//
// # Client
//
// [Watch] says of one request whether it can have left at all, whatever the error says. [Transport] makes any
// HTTP client, a vendor's SDK included, safe to use in an adapter. [Client] is for adapters without an SDK: it reads an answer by a
// table of statuses, in which everything that is not listed proves nothing (I4).
package httpsettle
