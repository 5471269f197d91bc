// The lifecycle of one host as Metal3's baremetal-operator runs it: register, inspect,
// prepare, provision, deprovision, delete. Any status or document that the
// operator does not expect ends the program.
package main

import (
	"fmt"
	"os"
	"time"

	"github.com/gophercloud/gophercloud/openstack/baremetal/v1/drivers"
	"github.com/gophercloud/gophercloud/openstack/baremetal/v1/nodes"
	"github.com/gophercloud/gophercloud/openstack/baremetal/v1/ports"
	"github.com/gophercloud/gophercloud/pagination"
)

// Credentials of the demo's BMCs.
const (
	bmcUser     = "admin"
	bmcPassword = "simulated"
)

// host has the fields of a BareMetalHost.
type host struct {
	name, mac string
	bmc       map[string]interface{}
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: operator ENDPOINT NODE")
		os.Exit(2)
	}
	box := connect(os.Args[1])
	one := freed(box, os.Args[2])
	id := register(box, one)
	inspect(box, id, one)
	prepare(box, id)
	provision(box, id)
	power(box, id)
	deprovision(box, id)
	remove(box, id)
	rehearse(box)
	fmt.Printf("%d calls went well\n", box.calls)
}

// freed deletes the node of a demo machine: afterwards the box has no record of it; the
// result has the data to register it again.
func freed(box *ironic, name string) host {
	node := box.node(name)
	mac := box.ports(ports.ListOpts{NodeUUID: node.UUID})[0].Address
	bmc := map[string]interface{}{
		"ipmi_username": bmcUser, "ipmi_password": bmcPassword,
		"ipmi_priv_level": "ADMINISTRATOR",
	}
	// The operator sends the port as text.
	for _, key := range []string{"ipmi_address", "ipmi_port"} {
		bmc[key] = fmt.Sprint(node.DriverInfo[key])
	}
	box.provision(node.UUID, nodes.ProvisionStateOpts{Target: nodes.TargetDeleted}, "available")
	err := nodes.Delete(box.ServiceClient, node.UUID).ExtractErr()
	box.went("delete "+name, err)
	return host{name: name, mac: mac, bmc: bmc}
}

// newNode is a create request with fields that are newer than Debian's gophercloud.
type newNode struct {
	nodes.CreateOpts
	DisablePowerOff bool
}

func (node newNode) ToNodeCreateMap() (map[string]interface{}, error) {
	body, err := node.CreateOpts.ToNodeCreateMap()
	if err == nil {
		body["disable_power_off"] = node.DisablePowerOff
	}
	return body, err
}

func register(box *ironic, one host) string {
	enabled := 0
	pager := drivers.ListDrivers(box.ServiceClient, drivers.ListDriversOpts{})
	err := pager.EachPage(func(page pagination.Page) (bool, error) {
		found, err := drivers.ExtractDrivers(page)
		enabled += len(found)
		return true, err
	})
	box.went("list drivers", err)
	if enabled == 0 {
		broken("drivers", fmt.Errorf("there are none"))
	}
	box.noNode("6c8f63ba-2a2b-4b4e-9c3e-000000000000")
	box.noNode("metal3~" + one.name)
	box.noNode(one.name)
	if found := box.ports(ports.ListOpts{Address: one.mac}); len(found) != 0 {
		broken("ports", fmt.Errorf("%+v are left of another node", found))
	}
	node, err := nodes.Create(box.ServiceClient, newNode{CreateOpts: nodes.CreateOpts{
		Driver:        "ipmi",
		BootInterface: "ipxe",
		// Both names of the operator's: deploy is left to its default.
		InspectInterface: "agent",
		RAIDInterface:    "no-raid",
		Name:             "metal3~" + one.name,
		DriverInfo:       one.bmc,
		Properties:       map[string]interface{}{"capabilities": "boot_mode:bios"},
	}}).Extract()
	box.went("create node", err)
	if node.ProvisionState != "enroll" || node.DriverInfo["ipmi_password"] != "******" {
		broken("create node", fmt.Errorf("%+v", node))
	}
	pxe := true
	port, err := ports.Create(box.ServiceClient, ports.CreateOpts{
		NodeUUID: node.UUID, Address: one.mac, PXEEnabled: &pxe,
	}).Extract()
	box.went("create port", err)
	if port.NodeUUID != node.UUID || !port.PXEEnabled {
		broken("create port", fmt.Errorf("%+v", port))
	}
	if box.node("metal3~"+one.name).UUID != node.UUID {
		broken("find by name", fmt.Errorf("it is another node"))
	}
	box.provision(node.UUID, nodes.ProvisionStateOpts{Target: nodes.TargetManage}, "manageable")
	return node.UUID
}

// found has the fields of an inventory that the operator reads; a wrong type fails the whole.
type found struct {
	Inventory struct {
		CPU struct {
			Count        int      `json:"count"`
			Frequency    string   `json:"frequency"`
			Flags        []string `json:"flags"`
			Architecture string   `json:"architecture"`
		} `json:"cpu"`
		Memory struct {
			PhysicalMb int `json:"physical_mb"`
		} `json:"memory"`
		Disks []struct {
			Name string `json:"name"`
			Size int64  `json:"size"`
		} `json:"disks"`
		Interfaces []struct {
			Name       string `json:"name"`
			MACAddress string `json:"mac_address"`
			HasCarrier bool   `json:"has_carrier"`
			SpeedMbps  int    `json:"speed_mbps"`
		} `json:"interfaces"`
		Hostname     string `json:"hostname"`
		SystemVendor struct {
			Manufacturer string `json:"manufacturer"`
			ProductName  string `json:"product_name"`
			SerialNumber string `json:"serial_number"`
		} `json:"system_vendor"`
	} `json:"inventory"`
	PluginData map[string]interface{} `json:"plugin_data"`
}

func inspect(box *ironic, id string, one host) {
	add := func(path string, value interface{}) nodes.UpdateOperation {
		return nodes.UpdateOperation{Op: nodes.AddOp, Path: path, Value: value}
	}
	box.update(id,
		add("/driver_info/kernel_append_params", "%default%"),
		add("/driver_info/force_persistent_boot_device", "Default"),
		add("/automated_clean", true),
		add("/properties/cpu_arch", "x86_64"),
	)
	path := "nodes/" + id + "/inventory"
	box.refused(path, 404)
	box.update(id, nodes.UpdateOperation{
		Op: nodes.ReplaceOp, Path: "/inspect_interface", Value: "agent",
	})
	box.provision(id, nodes.ProvisionStateOpts{Target: nodes.TargetInspect}, "manageable")
	var seen found
	box.get(path, 200, &seen)
	inventory := seen.Inventory
	if inventory.CPU.Count == 0 || inventory.Memory.PhysicalMb == 0 || len(inventory.Disks) == 0 ||
		len(inventory.Interfaces) == 0 || inventory.SystemVendor.Manufacturer == "" {
		broken("inventory", fmt.Errorf("%+v", seen))
	}
	for _, own := range inventory.Interfaces {
		if own.MACAddress == one.mac {
			return
		}
	}
	broken("inventory", fmt.Errorf("%s is not in %+v", one.mac, inventory.Interfaces))
}

func prepare(box *ironic, id string) {
	var capacity struct {
		Nodes []struct {
			UUID  string `json:"uuid"`
			Name  string `json:"name"`
			State string `json:"provision_state"`
			Boot  string `json:"boot_interface"`
		} `json:"nodes"`
	}
	box.get("nodes?fields=uuid,name,provision_state,boot_interface", 200, &capacity)
	if len(capacity.Nodes) == 0 || capacity.Nodes[0].Boot == "" {
		broken("capacity", fmt.Errorf("%+v", capacity))
	}
	// Settings and firmware of the host, where the driver has them.
	var settings struct {
		Bios []struct {
			Name  string `json:"name"`
			Value string `json:"value"`
		} `json:"bios"`
	}
	box.get("nodes/"+id+"/bios?detail=true", 200, &settings)
	var components struct {
		Firmware []struct {
			Component string `json:"component"`
			Current   string `json:"current_version"`
		} `json:"firmware"`
	}
	box.get("nodes/"+id+"/firmware", 200, &components)
	box.provision(id, nodes.ProvisionStateOpts{
		Target: nodes.TargetClean,
		CleanSteps: []nodes.CleanStep{{
			Interface: "deploy", Step: "erase_devices_metadata",
		}},
	}, "manageable")
	box.provision(id, nodes.ProvisionStateOpts{Target: nodes.TargetProvide}, "available")
}

func provision(box *ironic, id string) {
	set := func(path string, value interface{}) nodes.UpdateOperation {
		return nodes.UpdateOperation{Op: nodes.AddOp, Path: path, Value: value}
	}
	node := box.update(id,
		set("/instance_uuid", "11111111-2222-4333-8444-555555555555"),
		set("/instance_info", map[string]interface{}{
			"image_source": "demo.raw", "capabilities": map[string]interface{}{},
		}),
		set("/instance_info/root_device", map[string]interface{}{"name": "s== /dev/sda"}),
		set("/deploy_interface", "direct"),
	)
	if node.InstanceInfo["image_source"] == nil || node.DeployInterface != "direct" {
		broken("instance", fmt.Errorf("%+v", node))
	}
	// Debian's gophercloud calls no validation without a result, so read it here.
	var valid map[string]struct {
		Result *bool  `json:"result"`
		Reason string `json:"reason"`
	}
	box.get("nodes/"+id+"/validate", 200, &valid)
	for _, name := range []string{"boot", "deploy", "power", "management"} {
		if own := valid[name]; own.Result == nil || !*own.Result {
			broken("validate", fmt.Errorf("%s: %s", name, own.Reason))
		}
	}
	box.provision(id, nodes.ProvisionStateOpts{Target: nodes.TargetActive}, "active")
}

// rehearse deploys fake hardware with a config drive.
func rehearse(box *ironic) {
	node, err := nodes.Create(box.ServiceClient, newNode{CreateOpts: nodes.CreateOpts{
		Driver: "fake-hardware", Name: "metal3~simulated",
	}}).Extract()
	box.went("create a simulated node", err)
	id := node.UUID
	box.provision(id, nodes.ProvisionStateOpts{Target: nodes.TargetManage}, "manageable")
	box.provision(id, nodes.ProvisionStateOpts{Target: nodes.TargetProvide}, "available")
	box.provision(id, nodes.ProvisionStateOpts{
		Target: nodes.TargetActive,
		ConfigDrive: nodes.ConfigDrive{
			MetaData: map[string]interface{}{"local-hostname": "one", "uuid": id},
			UserData: "#cloud-config\n",
		},
	}, "active")
	box.provision(id, nodes.ProvisionStateOpts{Target: nodes.TargetDeleted}, "available")
	box.went("delete the simulated node", nodes.Delete(box.ServiceClient, id).ExtractErr())
}

func power(box *ironic, id string) {
	for _, want := range []nodes.TargetPowerState{nodes.PowerOff, nodes.PowerOn} {
		options := nodes.PowerStateOpts{Target: want}
		err := nodes.ChangePowerState(box.ServiceClient, id, options).ExtractErr()
		box.went(string(want), err)
		box.becomes(id, string(want), func(node *nodes.Node) bool {
			return node.PowerState == string(want) && node.TargetPowerState == ""
		})
	}
	// The operator falls back to a hard power off on 400, and on nothing else.
	options := nodes.PowerStateOpts{Target: nodes.SoftPowerOff, Timeout: 30}
	err := nodes.ChangePowerState(box.ServiceClient, id, options).ExtractErr()
	if err != nil {
		box.want("soft power off", 400, err)
		options = nodes.PowerStateOpts{Target: nodes.PowerOff}
		err = nodes.ChangePowerState(box.ServiceClient, id, options).ExtractErr()
	}
	box.went("power off", err)
	box.becomes(id, "power off", func(node *nodes.Node) bool {
		return node.PowerState == "power off" && node.TargetPowerState == ""
	})
}

func deprovision(box *ironic, id string) {
	box.update(id, nodes.UpdateOperation{
		Op: nodes.ReplaceOp, Path: "/automated_clean", Value: true,
	})
	box.provision(id, nodes.ProvisionStateOpts{Target: nodes.TargetDeleted}, "available")
	if node := box.node(id); node.InstanceUUID != "" || len(node.InstanceInfo) != 0 {
		broken("deprovision", fmt.Errorf("%+v", node))
	}
}

func remove(box *ironic, id string) {
	// A node with an instance is kept, unless the deletion is forced.
	box.update(id, nodes.UpdateOperation{
		Op: nodes.AddOp, Path: "/instance_uuid", Value: "11111111-2222-4333-8444-666666666666",
	})
	box.want("delete", 409, nodes.Delete(box.ServiceClient, id).ExtractErr())
	box.send("PUT", "nodes/"+id+"/maintenance", map[string]string{"reason": "going"}, nil, 202)
	if node := box.node(id); !node.Maintenance || node.MaintenanceReason != "going" {
		broken("maintenance", fmt.Errorf("%+v", node))
	}
	box.send("DELETE", "nodes/"+id+"/maintenance", nil, nil, 202)
	box.update(id, nodes.UpdateOperation{Op: nodes.RemoveOp, Path: "/instance_uuid"})
	err := nodes.Delete(box.ServiceClient, id).ExtractErr()
	box.went("delete", err)
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(pause) {
		if nodes.Get(box.ServiceClient, id).Err != nil {
			break
		}
	}
	box.noNode(id)
	if left := box.ports(ports.ListOpts{NodeUUID: ""}); len(left) != 1 {
		broken("ports", fmt.Errorf("%+v are left, not only the other node's", left))
	}
}
