// Package monitoring holds what Prometheus and Grafana need to watch settle through package otelsettle: alert rules with their
// unit tests (settle.rules.yml, settle.rules.test.yml) and a dashboard (settle.dashboard.json). What to do at each alert is in
// docs/operators.md.
//
// It is a module of its own, so that the query language of Prometheus, which tests the rules, is required by nothing else. There is nothing to import.
package monitoring
