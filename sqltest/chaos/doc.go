// Package chaos tests the stores and the engine with faults that are real: connections cut at
// every round trip, processes and database servers killed, clocks that are wrong, and a provider
// that drops, delays and repeats. What the provider's ledger says is the verdict.
//
// Connections go through toxiproxy, with toxics of this package that know requests and answers.
//
// [TestI15_EveryRoundTrip] and [TestI15_PoolOfOne] work on the servers that the tests of sqltest
// share. [TestI10_Chaos] starts servers of its own, whose programs (postgres and initdb, mariadbd
// and mariadb-install-db) must be installed, and processes: it is for Linux. It is short unless
// -chaos.ops says how many operations to perform; -chaos.seed repeats the faults of another run, as
// far as processes that run at the same time can be made to repeat themselves.
// [TestOracleBites] runs workers with a mistake in them and sees them found out.
package chaos
