// Package otelsettle reports what settle does to OpenTelemetry.
//
//   - [New] makes a settle.Observer that counts transitions, observations, alarms and trouble, and measures how long
//     operations take. Its attributes are settle's own words and the names of kinds, so what it
//     costs does not grow with the operations.
//   - [Wrap] makes an adapter whose requests and lookups are spans and are timed.
//
// All spans of an operation are in one trace, whichever processes and callers worked on it: its trace id is the
// operation's id without the hyphens ([TraceID]). A span is linked to the caller's, so that the way
// leads back from there too.
//
// Neither takes in a request, a result, a key, a subject, a scope or a message of anybody (I16).
package otelsettle
