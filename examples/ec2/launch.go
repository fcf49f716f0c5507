package main

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/smithy-go"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/httpsettle"
)

// contract is what Amazon promises for RunInstances. Each fact with where it is from; "ours" marks a choice of this program.
//
//   - MaxLen: 64 ASCII characters, case-sensitive (API reference, RunInstances, ClientToken; the SDK's documentation says the same).
//   - Window: a client token "is valid for at least 24 hours after the termination of the instance" ("Ensuring Idempotency", API
//     reference in its editions up to 2016-11-15, and the user guide of 2013). In what was read of the present page ("Ensuring
//     idempotency in Amazon EC2 API requests") no time was found. So 24 hours from the first use is a lower bound of the only time known.
//   - A repeat with the same parameters succeeds without doing anything, and may show the present state; with other ones it
//     is IdempotentParameterMismatch (the same page). A token belongs to the account and region.
//   - ConcurrentSafe: nothing is said about two requests under one token at a time. Hence false.
//   - Lookup: DescribeInstances has a filter client-token. The API follows an eventual consistency model ("Eventual consistency in the Amazon
//     EC2 API"); LookupLag is not published. Ours: five minutes.
//   - SettleDelay: not published. Ours: two minutes.
//   - ProcessingLimit: ours. An instance is pending for minutes.
func contract(account, region string) settle.Contract {
	return settle.Contract{
		Account:         settle.AccountFacts{Provider: "aws-ec2", Account: account, Region: region},
		Keys:            settle.Keys{Window: 24 * time.Hour, MaxLen: 64},
		Lookup:          settle.Eventual,
		LookupLag:       5 * time.Minute,
		SettleDelay:     2 * time.Minute,
		Deadline:        30 * time.Second,
		ProcessingLimit: time.Hour,
		Source:          "docs.aws.amazon.com: EC2 API reference (RunInstances, DescribeInstances), ec2-api-idempotency, Run_Instance_Idempotency, eventual-consistency, errors-overview; service/ec2 v1.347.0",
		Checked:         "2026-11-29, in stored copies of the pages",
	}
}

// Launch is one instance to be launched.
type Launch struct {
	Image string `json:"image"`
	Type  string `json:"type"`
	// Zone is named here and not left to Amazon: a token counts within the zone that a request names.
	Zone string `json:"zone"`
}

// Machine is what is kept of it.
type Machine struct {
	ID string `json:"id"`
}

// ownReference is the tag with the operation's id, for people who look at the account.
const ownReference = "settle-operation"

// newClient makes the SDK's client. endpoint is empty for Amazon itself. Three things differ from the default:
//
//   - There are no retries (the default is three tries). The SDK would repeat under the same token, which is harmless; but it decides by
//     error codes of its own, sleeps in between, and settle repeats anyway.
//   - The HTTP client is bounded by the contract's deadline, and follows no redirect.
//   - The mode that logs bodies stays off, whatever the environment says.
func newClient(creds aws.CredentialsProvider, endpoint string, transport http.RoundTripper, promise settle.Contract) *ec2.Client {
	o := ec2.Options{
		Region: promise.Account.Region, Credentials: creds, Retryer: aws.NopRetryer{}, ClientLogMode: 0,
		HTTPClient: &http.Client{
			Transport: transport, Timeout: promise.Deadline,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
	if endpoint != "" {
		o.BaseEndpoint = aws.String(endpoint)
	}
	return ec2.New(o)
}

func newAdapter(api *ec2.Client, promise settle.Contract) settle.Adapter[Launch, Machine] {
	return settle.Adapter[Launch, Machine]{
		Promise: promise,
		TermsFunc: func(op settle.Operation[Launch]) settle.Terms {
			r := op.Request
			return settle.Terms{Account: promise.Account.Account, Other: map[string]string{"image": r.Image, "type": r.Type, "zone": r.Zone}}
		},
		SubmitFunc: func(ctx context.Context, c *settle.Call[Launch]) (settle.Observation[Machine], error) {
			ctx, way := httpsettle.Watch(ctx)
			out, err := api.RunInstances(ctx, &ec2.RunInstancesInput{
				ClientToken: aws.String(c.Key()), // without it the SDK makes one up, a new one for each call
				ImageId:     aws.String(c.Request.Image), InstanceType: types.InstanceType(c.Request.Type),
				Placement: &types.Placement{AvailabilityZone: aws.String(c.Request.Zone)},
				MinCount:  aws.Int32(1), MaxCount: aws.Int32(1), // both or neither: a part of what was asked for is no effect
				TagSpecifications: []types.TagSpecification{{
					ResourceType: types.ResourceTypeInstance,
					Tags:         []types.Tag{{Key: aws.String(ownReference), Value: aws.String(c.ID)}},
				}},
			})
			switch {
			case err != nil:
				return refused(err, way, c.Attempt)
			case len(out.Instances) != 1:
				return settle.Observation[Machine]{}, errors.New("ec2: the reply is not of one instance")
			}
			return observe(aws.ToString(out.OwnerId), out.Instances[0]), nil
		},
		LookupFunc: func(ctx context.Context, c *settle.Call[Launch]) (settle.Observation[Machine], error) {
			if c.Ref != "" {
				return look(ctx, api, &ec2.DescribeInstancesInput{InstanceIds: []string{c.Ref}})
			}
			return look(ctx, api, &ec2.DescribeInstancesInput{
				Filters: []types.Filter{{Name: aws.String("client-token"), Values: []string{c.Key()}}},
			})
		},
	}
}

// look reads all pages: an empty one may not be the last.
func look(ctx context.Context, api *ec2.Client, in *ec2.DescribeInstancesInput) (settle.Observation[Machine], error) {
	found := settle.Observation[Machine]{Fact: settle.NotFound}
	for pages := ec2.NewDescribeInstancesPaginator(api, in); pages.HasMorePages(); {
		page, err := pages.NextPage(ctx)
		var e smithy.APIError
		switch {
		case errors.As(err, &e) && e.ErrorCode() == "InvalidInstanceID.NotFound":
			return found, nil // not yet visible, or long gone
		case err != nil:
			return settle.Observation[Machine]{}, err
		case page.Reservations == nil:
			return settle.Observation[Machine]{}, errors.New("ec2: the reply is no list") // the SDK takes an empty body for an empty list
		}
		for _, r := range page.Reservations {
			for _, i := range r.Instances {
				if seen := observe(aws.ToString(r.OwnerId), i); found.Fact == settle.NotFound || found.Fact == settle.Reversed {
					found = seen // one that stands is not hidden by one that is gone
				}
			}
		}
	}
	return found, nil
}

// observe says what an instance proves, in Amazon's own words.
func observe(owner string, i types.Instance) settle.Observation[Machine] {
	id := aws.ToString(i.InstanceId)
	out := settle.Observation[Machine]{
		Ref: id, Result: Machine{ID: id},
		Terms: settle.Terms{Account: owner, Other: map[string]string{"image": aws.ToString(i.ImageId), "type": string(i.InstanceType)}},
	}
	if i.Placement != nil {
		out.Terms.Other["zone"] = aws.ToString(i.Placement.AvailabilityZone)
	}
	if i.StateReason != nil {
		out.Code = aws.ToString(i.StateReason.Code)
	}
	if i.State == nil || id == "" {
		return settle.Observation[Machine]{Ref: id}
	}
	switch i.State.Name {
	case types.InstanceStateNamePending:
		out.Fact = settle.Underway // it runs, or is terminated for want of capacity
	case types.InstanceStateNameRunning, types.InstanceStateNameStopping, types.InstanceStateNameStopped:
		out.Fact = settle.Applied
	case types.InstanceStateNameShuttingDown, types.InstanceStateNameTerminated:
		out.Fact = settle.Reversed
	} // a state that is new proves nothing
	return out
}

// refused says what the error of a launch proves. Codes that are not listed prove nothing.
func refused(err error, way *httpsettle.Watched, attempt int) (settle.Observation[Machine], error) {
	var none settle.Observation[Machine]
	var e smithy.APIError
	switch {
	case way.NotSent(err):
		return settle.Observation[Machine]{Fact: settle.NotSent, Code: "no_connection"}, nil
	case !errors.As(err, &e):
		return none, err
	}
	out := settle.Observation[Machine]{Code: e.ErrorCode(), Message: e.ErrorMessage()}
	switch e.ErrorCode() {
	case "InvalidAMIID.NotFound", "InvalidAMIID.Malformed", "InvalidAMIID.Unavailable", "InvalidParameterValue", "InvalidParameterCombination",
		"InvalidInstanceType", "MissingParameter", "Unsupported", "InstanceLimitExceeded", "VcpuLimitExceeded", "MaxSpotInstanceCountExceeded":
		// A request that was never valid. On a later attempt it says nothing about the ones before.
		out.Fact = settle.NotApplied
		if first := attempt == 1; first {
			out.Fact = settle.Declined
		}
	case "AuthFailure", "UnauthorizedOperation", "RequestExpired", "SignatureDoesNotMatch", "OptInRequired", "PendingVerification", "Blocked",
		"RequestLimitExceeded", "InsufficientInstanceCapacity":
		// Documented as refused before anything was made, and as worth another try. Amazon names no time: ours, a minute for capacity.
		out.Fact = settle.NotApplied
		if e.ErrorCode() == "InsufficientInstanceCapacity" {
			out.RetryAfter = time.Minute
		}
	} // IdempotentParameterMismatch: a request under our token exists, with other parameters. It is not this one's failure.
	return out, nil
}
