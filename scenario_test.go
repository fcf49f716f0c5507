package settle_test

import (
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/internal/scenario"
	"github.com/settle-go/settle/memstore"
)

// inMemory is the reference store, on the clock of the bubble in which it is made.
func inMemory(testing.TB) settle.Store { return memstore.New(nil) }

func TestTraces(t *testing.T) { scenario.RunTraces(t, inMemory) }

func TestI1_RecordBeforeRequest(t *testing.T)          { scenario.I1(t, inMemory) }
func TestI2_OneIdentityOneKeyOneRequest(t *testing.T)  { scenario.I2(t, inMemory) }
func TestI3_BoundRequest(t *testing.T)                 { scenario.I3(t, inMemory) }
func TestI4_NoAnswerIsNoEvidence(t *testing.T)         { scenario.I4(t, inMemory) }
func TestI5_OneLiveClaim(t *testing.T)                 { scenario.I5(t, inMemory) }
func TestI6_InsideTheWindow(t *testing.T)              { scenario.I6(t, inMemory) }
func TestI8_ConfirmThenCompensate(t *testing.T)        { scenario.I8(t, inMemory) }
func TestI10_NothingIsStuck(t *testing.T)              { scenario.I10(t, inMemory) }
func TestI11_OneConsequence(t *testing.T)              { scenario.I11(t, inMemory) }
func TestI12_NothingLearnedIsLost(t *testing.T)        { scenario.I12(t, inMemory) }
func TestI13_NoClockOfOursDecides(t *testing.T)        { scenario.I13(t, inMemory) }
func TestI14_IdentityOutlivesData(t *testing.T)        { scenario.I14(t, inMemory) }
func TestI15_TheStoresSilenceIsAmbiguous(t *testing.T) { scenario.I15(t, inMemory) }
func TestI16_SecretsStayIn(t *testing.T)               { scenario.I16(t, inMemory) }

func TestEvents(t *testing.T) { t.Parallel(); scenario.RunEvents(t, inMemory) }

// TestLedgerModel plays random runs; SETTLE_LEDGER_SEED repeats one.
func TestLedgerModel(t *testing.T) {
	t.Parallel()
	seed, runs := uint64(time.Now().UnixNano()), 12
	if s := os.Getenv("SETTLE_LEDGER_SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seed, runs = n, 1
	}
	t.Logf("seed %d", seed)
	scenario.RunLedgerModel(t, inMemory, seed, runs, 60)
}

func TestCases(t *testing.T)         { scenario.RunCases(t, inMemory) }
func TestCompensations(t *testing.T) { scenario.RunCompensations(t, inMemory) }
func TestReports(t *testing.T)       { t.Parallel(); scenario.RunReports(t, inMemory) }
func TestAuthority(t *testing.T)     { t.Parallel(); scenario.RunAuthority(t, inMemory) }
func TestFeed(t *testing.T)          { t.Parallel(); scenario.RunFeed(t, inMemory) }
func TestSealed(t *testing.T)        { t.Parallel(); scenario.RunSealed(t, inMemory) }
