package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/gophercloud/gophercloud"
	"github.com/gophercloud/gophercloud/openstack/baremetal/noauth"
	"github.com/gophercloud/gophercloud/openstack/baremetal/v1/nodes"
	"github.com/gophercloud/gophercloud/openstack/baremetal/v1/ports"
	"github.com/gophercloud/gophercloud/pagination"
)

// Timeout of one step of a host's lifecycle.
const patience = 4 * time.Minute

// Polling interval of a host; the operator's are 3 s and 10 s.
const pause = 200 * time.Millisecond

// ironic is a client that counts its calls, and ends the program on any unexpected result.
type ironic struct {
	*gophercloud.ServiceClient
	calls int
}

// connect requests the versions as gophercloud v2 does: a GET of exactly `/v1/`.
func connect(endpoint string) *ironic {
	client, err := noauth.NewBareMetalNoAuth(noauth.EndpointOpts{
		IronicEndpoint: endpoint + "/v1/",
	})
	must("connect", err)
	box := &ironic{ServiceClient: client}
	var root struct {
		Version struct {
			Min string `json:"min_version"`
			Max string `json:"version"`
		} `json:"version"`
	}
	box.get("", 200, &root)
	// The operator uses the newest version it knows; the box has newer ones.
	if root.Version.Min != "1.1" || !atLeast(root.Version.Max, 110) {
		broken("versions", fmt.Errorf("%+v", root))
	}
	client.Microversion = "1.110"
	return box
}

func atLeast(version string, minor int) bool {
	var major, offered int
	_, err := fmt.Sscanf(version, "%d.%d", &major, &offered)
	return err == nil && major == 1 && offered >= minor
}

func broken(what string, why error) {
	fmt.Fprintf(os.Stderr, "%s: %v\n", what, why)
	os.Exit(1)
}

func must(what string, err error) {
	if err != nil {
		broken(what, err)
	}
}

// went counts a call that must have succeeded.
func (box *ironic) went(what string, err error) {
	must(what, err)
	box.calls++
}

// want fails unless the call was refused with this status.
func (box *ironic) want(what string, status int, err error) {
	box.calls++
	switch refusal := err.(type) {
	case gophercloud.ErrDefault400:
		box.same(what, status, 400, refusal.Body)
	case gophercloud.ErrDefault404:
		box.same(what, status, 404, refusal.Body)
	case gophercloud.ErrDefault409:
		box.same(what, status, 409, refusal.Body)
	case gophercloud.ErrUnexpectedResponseCode:
		box.same(what, status, refusal.Actual, refusal.Body)
	default:
		broken(what, fmt.Errorf("wanted status %d, got %v", status, err))
	}
}

// same also parses the error: its message is JSON inside a string.
func (box *ironic) same(what string, want, got int, body []byte) {
	var outer struct {
		Message string `json:"error_message"`
	}
	must(what, json.Unmarshal(body, &outer))
	var inner struct {
		Fault string `json:"faultstring"`
	}
	must(what, json.Unmarshal([]byte(outer.Message), &inner))
	if want != got || inner.Fault == "" {
		broken(what, fmt.Errorf("wanted status %d, got %d: %s", want, got, body))
	}
}

// get and send make the calls that Debian's gophercloud, which is of 2020, lacks.
func (box *ironic) get(path string, status int, into interface{}) {
	_, err := box.Get(box.Endpoint+path, into, &gophercloud.RequestOpts{OkCodes: []int{status}})
	box.went("GET "+path, err)
}

func (box *ironic) send(method, path string, body, into interface{}, status int) {
	options := &gophercloud.RequestOpts{OkCodes: []int{status}, JSONBody: body}
	if into != nil {
		options.JSONResponse = into
	}
	_, err := box.Request(method, box.Endpoint+path, options)
	box.went(method+" "+path, err)
}

func (box *ironic) refused(path string, status int) {
	var response *http.Response
	response, err := box.Get(box.Endpoint+path, nil, nil)
	if err == nil {
		broken("GET "+path, fmt.Errorf("wanted status %d, got %d", status, response.StatusCode))
	}
	box.want("GET "+path, status, err)
}

// node reads the whole record of a host; the operator gets all its data this way.
func (box *ironic) node(id string) *nodes.Node {
	node, err := nodes.Get(box.ServiceClient, id).Extract()
	box.went("get "+id, err)
	return node
}

func (box *ironic) noNode(id string) {
	box.want("get "+id, 404, nodes.Get(box.ServiceClient, id).Err)
}

func (box *ironic) update(id string, operations ...nodes.UpdateOperation) *nodes.Node {
	var patch nodes.UpdateOpts
	var paths []string
	for _, operation := range operations {
		patch = append(patch, operation)
		paths = append(paths, operation.Path)
	}
	node, err := nodes.Update(box.ServiceClient, id, patch).Extract()
	box.went("patch "+strings.Join(paths, " "), err)
	return node
}

// provision requests a verb and polls until the host is in the expected state.
func (box *ironic) provision(id string, options nodes.ProvisionStateOptsBuilder, state string) {
	what := fmt.Sprintf("to %s", state)
	err := nodes.ChangeProvisionState(box.ServiceClient, id, options).ExtractErr()
	box.went(what, err)
	box.becomes(id, what, func(node *nodes.Node) bool {
		if strings.HasSuffix(node.ProvisionState, " failed") || node.ProvisionState == "error" ||
			(node.ProvisionState == "enroll" && node.LastError != "") {
			broken(what, fmt.Errorf("%s: %s", node.ProvisionState, node.LastError))
		}
		if node.ProvisionState == state && node.TargetProvisionState != "" {
			broken(what, fmt.Errorf("in %s and on the way", state))
		}
		return node.ProvisionState == state
	})
}

func (box *ironic) becomes(id, what string, is func(*nodes.Node) bool) {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(pause) {
		if is(box.node(id)) {
			return
		}
	}
	broken(what, fmt.Errorf("not within %s: %+v", patience, box.node(id)))
}

// ports lists ports as the operator does: three fields and one filter.
func (box *ironic) ports(filter ports.ListOpts) []ports.Port {
	filter.Fields = []string{"node_uuid,uuid,address"}
	var found []ports.Port
	pager := ports.List(box.ServiceClient, filter)
	err := pager.EachPage(func(page pagination.Page) (bool, error) {
		some, err := ports.ExtractPorts(page)
		found = append(found, some...)
		return true, err
	})
	box.went("list ports", err)
	return found
}
