package main

import (
	"context"
	"encoding/json"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// server offers the tools by the Model Context Protocol, with its official SDK. The server keeps nothing between
// calls: a client may lose the reply, connect to another process, and call again.
func (t *toolset) server() (*mcp.Server, error) {
	output, err := jsonschema.For[result](nil)
	if err != nil {
		return nil, err
	}
	s := mcp.NewServer(&mcp.Implementation{Name: "orders", Version: "1.0.0"}, &mcp.ServerOptions{
		Instructions: "Each order is paid at most once. A result that is not known is not a failure: ask for operation_status, and never pay in another way.",
	})
	for _, d := range definitions() {
		s.AddTool(&mcp.Tool{
			Name: d.Name, Description: d.Description, InputSchema: d.InputSchema, OutputSchema: output, Annotations: annotations(d.Name),
		}, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			// Never an error of the protocol: clients and models read that as "failed, do it again".
			res := t.do(ctx, req.Params.Name, req.Params.Arguments)
			structured, err := json.Marshal(res)
			if err != nil {
				return nil, err
			}
			return &mcp.CallToolResult{
				Content:           []mcp.Content{&mcp.TextContent{Text: res.text()}},
				StructuredContent: json.RawMessage(structured),
				IsError:           res.noEffect(),
			}, nil
		})
	}
	return s, nil
}

// annotations say what a call can do. Paying is idempotent, since the order is its identity. It is destructive, as money that
// is gone is nothing that was merely added, so that clients ask before; and it reaches somebody else's system.
func annotations(tool string) *mcp.ToolAnnotations {
	yes, no := true, false
	if tool == "pay_order" {
		return &mcp.ToolAnnotations{Title: "Pay an order", IdempotentHint: true, DestructiveHint: &yes, OpenWorldHint: &yes}
	}
	return &mcp.ToolAnnotations{Title: "What became of a payment", ReadOnlyHint: true, IdempotentHint: true, DestructiveHint: &no, OpenWorldHint: &no}
}
