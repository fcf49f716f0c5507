package stdwebhook_test

import (
	"fmt"
	"net/http"
	"time"

	"github.com/settle-go/settle/stdwebhook"
	"github.com/settle-go/settle/webhook"
)

type then struct{}

func (then) Now() time.Time { return time.Unix(1614265330, 0) }

// The delivery that the standard's own libraries test with, and the same one with a body that was touched.
func ExampleScheme() {
	v, err := webhook.New(stdwebhook.Scheme(), &webhook.Options{
		Secrets: []webhook.Secret{{Value: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}},
		Clock:   then{}, // the delivery is of 2021
	})
	if err != nil {
		panic(err)
	}
	h := http.Header{}
	h.Set("Webhook-Id", "msg_p5jXN8AQM9LWM0D4loKWxJek")
	h.Set("Webhook-Timestamp", "1614265330")
	h.Set("Webhook-Signature", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=")
	d, err := v.Verify(h, []byte(`{"test": 2432232314}`))
	fmt.Println(d.ID, err)
	_, err = v.Verify(h, []byte(`{"test":2432232314}`))
	fmt.Println(err)
	// Output:
	// msg_p5jXN8AQM9LWM0D4loKWxJek <nil>
	// settle: webhook: signature refused: mismatch
}
