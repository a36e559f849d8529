"""The columns of kinds without simulated behavior.

Source:
    kube-apiserver v1.36, pkg/printers/internalversion/printers.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scheduler.tools.simulator.apimachinery.kinds import (
    AGE,
    NAME,
    Cell,
    Printer,
    PrinterColumn,
    age,
    at,
    created,
    human_duration,
    pairs_text,
)
from scheduler.tools.simulator.apimachinery.selectors import selector_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from scheduler.tools.simulator.apimachinery.objects import Object

_SHOWN: Final = 3


def _first(items: Sequence[str]) -> str:
    """Format the first items of a list, and how many more there are."""
    shown = ",".join(items[:_SHOWN]) or "<unset>"
    return f"{shown} + {len(items) - _SHOWN} more..." if len(items) > _SHOWN else shown


def _endpoints(endpoints: Object, _: datetime) -> str:
    found = [
        f"{address['ip']}:{port['port']}" if port else address["ip"]
        for subset in endpoints.get("subsets", ())
        for port in subset.get("ports", [None])
        for address in subset.get("addresses", ())
    ]
    return _first(found) if endpoints.get("subsets") else "<none>"


def _slice_ports(slice_: Object, _: datetime) -> str:
    return _first([str(port.get("port", port["name"] or "*")) for port in slice_.get("ports", ())])


def _slice_endpoints(slice_: Object, _: datetime) -> str:
    return _first([address for one in slice_.get("endpoints", ()) for address in one["addresses"]])


def _containers(field: str, path: str) -> Cell:
    read = at(path, ())
    return lambda obj, now: ",".join(one.get(field, "") for one in read(obj, now))


def _last_schedule(job: Object, now: datetime) -> str:
    last = job["status"].get("lastScheduleTime")
    return age(last, now) if last else "<none>"


def _target(autoscaler: Object, _: datetime) -> str:
    target = autoscaler["spec"]["scaleTargetRef"]
    return f"{target['kind']}/{target['name']}"


def _metrics(autoscaler: Object, _: datetime) -> str:
    """Format the resource metrics of an autoscaler; other metrics are not supported."""
    current = {
        one["resource"]["name"]: one["resource"]["current"]
        for one in autoscaler["status"].get("currentMetrics", ())
        if "resource" in one
    }
    shown = []
    for metric in autoscaler["spec"]["metrics"]:
        resource = metric.get("resource")
        if resource is None:
            shown.append("<unknown type>")
            continue
        name, wanted, found = resource["name"], resource["target"], current.get(resource["name"], {})
        if "averageValue" in wanted:
            shown.append(f"{name}: {found.get('averageValue', '<unknown>')}/{wanted['averageValue']}")
        else:
            share = f"{found['averageUtilization']}%" if "averageUtilization" in found else "<unknown>"
            shown.append(f"{name}: {share}/{wanted.get('averageUtilization', 80)}%")
    return ", ".join(shown) or "<none>"


def _quota(*, limits: bool) -> Cell:
    def cell(quota: Object, _: datetime) -> str:
        hard, used = quota["status"].get("hard", {}), quota["status"].get("used", {})
        return ", ".join(
            f"{name}: {used.get(name, 0)}/{hard[name]}"
            for name in sorted(hard)
            if name.startswith("limits.") == limits
        )

    return cell


def _request_state(request: Object, _: datetime) -> str:
    status = request["status"]
    types = {one["type"] for one in status.get("conditions", ())}
    state = "Denied" if "Denied" in types else "Approved" if "Approved" in types else "Pending"
    return state + (",Failed" if "Failed" in types else "") + (",Issued" if status.get("certificate") else "")


def _requested_duration(request: Object, _: datetime) -> str:
    seconds = request["spec"].get("expirationSeconds")
    return "<none>" if seconds is None else human_duration(seconds)


def _parent(address: Object) -> str:
    parent = address["spec"].get("parentRef")
    if parent is None:
        return "<none>"
    resource = ".".join(filter(None, (parent.get("resource", ""), parent.get("group", ""))))
    return "/".join(filter(None, (resource, parent.get("namespace", ""), parent.get("name", ""))))


def _hosts(ingress: Object, _: datetime) -> str:
    hosts = [rule["host"] for rule in ingress["spec"].get("rules", ()) if rule.get("host")]
    return _first(hosts) if hosts else "*"


def _addresses(ingress: Object, _: datetime) -> str:
    points = ingress["status"]["loadBalancer"].get("ingress", ())
    return ",".join(sorted(point.get("ip") or point.get("hostname", "") for point in points))


def _parameters(class_: Object, _: datetime) -> str:
    parameters = class_["spec"].get("parameters")
    if parameters is None:
        return "<none>"
    kind = ".".join(filter(None, (parameters["kind"], parameters.get("apiGroup"))))
    return f"{kind}/{parameters['name']}"


def _parameter_kind(policy: Object, _: datetime) -> str:
    kind = policy["spec"].get("paramKind")
    return "<unset>" if kind is None else f"{kind['apiVersion']}/{kind['kind']}"


def _parameter_name(binding: Object, _: datetime) -> str:
    reference = binding["spec"].get("paramRef")
    if reference is None:
        return "<unset>"
    return f"{reference.get('namespace', '*')}/{reference.get('name', '')}"


def _template(path: str, priority: int = 0) -> tuple[PrinterColumn, PrinterColumn]:
    names, images = _containers("name", path), _containers("image", path)
    return (
        PrinterColumn(
            "Containers", "Names of each container in the template.", priority=priority, cell=names
        ),
        PrinterColumn(
            "Images", "Images referenced by each container in the template.", priority=priority, cell=images
        ),
    )


OTHER_PRINTERS: Final[Mapping[str, Printer]] = {
    "endpoints": Printer(
        (NAME, PrinterColumn("Endpoints", ("V1Endpoints", "subsets"), cell=_endpoints), AGE)
    ),
    "endpointslices.discovery.k8s.io": Printer(
        (
            NAME,
            PrinterColumn("AddressType", ("V1EndpointSlice", "addressType"), cell=at("addressType")),
            PrinterColumn("Ports", ("V1EndpointSlice", "ports"), cell=_slice_ports),
            PrinterColumn("Endpoints", ("V1EndpointSlice", "endpoints"), cell=_slice_endpoints),
            AGE,
        )
    ),
    "cronjobs.batch": Printer(
        (
            NAME,
            PrinterColumn("Schedule", ("V1CronJobSpec", "schedule"), cell=at("spec.schedule")),
            PrinterColumn("Timezone", ("V1CronJobSpec", "timeZone"), cell=at("spec.timeZone", "<none>")),
            PrinterColumn(
                "Suspend",
                ("V1CronJobSpec", "suspend"),
                "boolean",
                cell=lambda job, _: str(job["spec"]["suspend"]),
            ),
            PrinterColumn(
                "Active",
                ("V1CronJobStatus", "active"),
                "integer",
                cell=lambda job, _: len(job["status"].get("active", ())),
            ),
            PrinterColumn("Last Schedule", ("V1CronJobStatus", "lastScheduleTime"), cell=_last_schedule),
            AGE,
            *_template("spec.jobTemplate.spec.template.spec.containers", priority=1),
            PrinterColumn(
                "Selector",
                "A label query over pods that should match the pod count.",
                priority=1,
                cell=lambda job, _: (
                    selector_text(job["spec"]["jobTemplate"]["spec"].get("selector") or {}) or "<none>"
                ),
            ),
        )
    ),
    "horizontalpodautoscalers.autoscaling": Printer(
        (
            NAME,
            PrinterColumn(
                "Reference", "scaleTargetRef points to the target resource to scale.", cell=_target
            ),
            PrinterColumn("Targets", ("V2HorizontalPodAutoscalerSpec", "metrics"), cell=_metrics),
            PrinterColumn(
                "MinPods",
                ("V2HorizontalPodAutoscalerSpec", "minReplicas"),
                cell=lambda autoscaler, _: str(autoscaler["spec"]["minReplicas"]),
            ),
            PrinterColumn(
                "MaxPods", ("V2HorizontalPodAutoscalerSpec", "maxReplicas"), cell=at("spec.maxReplicas", 0)
            ),
            PrinterColumn(
                "Replicas",
                ("V2HorizontalPodAutoscalerStatus", "currentReplicas"),
                cell=at("status.currentReplicas", 0),
            ),
            AGE,
        )
    ),
    "resourcequotas": Printer(
        (
            NAME,
            PrinterColumn(
                "Request",
                "Request represents a minimum amount of cpu/memory that a container may consume.",
                cell=_quota(limits=False),
            ),
            PrinterColumn(
                "Limit",
                "Limits control the maximum amount of cpu/memory that a container may use independent of contention "
                "on the node.",
                cell=_quota(limits=True),
            ),
            AGE,
        )
    ),
    "certificatesigningrequests.certificates.k8s.io": Printer(
        (
            NAME,
            AGE,
            PrinterColumn(
                "SignerName",
                ("V1CertificateSigningRequestSpec", "signerName"),
                cell=at("spec.signerName", "<none>"),
            ),
            PrinterColumn(
                "Requestor", ("V1CertificateSigningRequestSpec", "request"), cell=at("spec.username")
            ),
            PrinterColumn(
                "RequestedDuration",
                ("V1CertificateSigningRequestSpec", "expirationSeconds"),
                cell=_requested_duration,
            ),
            PrinterColumn(
                "Condition", ("V1CertificateSigningRequestStatus", "conditions"), cell=_request_state
            ),
        )
    ),
    "runtimeclasses.node.k8s.io": Printer((NAME, PrinterColumn("Handler", "", cell=at("handler")), AGE)),
    "servicecidrs.networking.k8s.io": Printer(
        (
            NAME,
            PrinterColumn(
                "CIDRs",
                ("V1ServiceCIDRSpec", "cidrs"),
                cell=lambda range_, _: ",".join(range_["spec"].get("cidrs", ())),
            ),
            AGE,
        )
    ),
    "ipaddresses.networking.k8s.io": Printer(
        (
            NAME,
            PrinterColumn("ParentRef", "ParentRef references the resource that an IPAddress is attached to."),
        ),
        lambda obj, now: [obj["metadata"]["name"], _parent(obj), created(obj, now)],  # one more than columns
    ),
    "ingresses.networking.k8s.io": Printer(
        (
            NAME,
            PrinterColumn(
                "Class",
                "The name of the IngressClass resource that should be used for additional configuration",
                cell=at("spec.ingressClassName", "<none>"),
            ),
            PrinterColumn(
                "Hosts",
                "Hosts that incoming requests are matched against before the ingress rule",
                cell=_hosts,
            ),
            PrinterColumn(
                "Address",
                "Address is a list containing ingress points for the load-balancer",
                cell=_addresses,
            ),
            PrinterColumn(
                "Ports",
                "Ports of TLS configurations that open",
                cell=lambda ingress, _: "80, 443" if ingress["spec"].get("tls") else "80",
            ),
            AGE,
        )
    ),
    "ingressclasses.networking.k8s.io": Printer(
        (
            NAME,
            PrinterColumn(
                "Controller",
                "Controller that is responsible for handling this class",
                cell=at("spec.controller"),
            ),
            PrinterColumn(
                "Parameters", "A reference to a resource with additional parameters", cell=_parameters
            ),
            AGE,
        )
    ),
    "podtemplates": Printer(
        (
            NAME,
            *_template("template.spec.containers"),
            PrinterColumn(
                "Pod Labels",
                "The labels for the pod template.",
                cell=lambda obj, _: pairs_text(obj["template"]["metadata"].get("labels", {})),
            ),
        )
    ),
    "validatingadmissionpolicies.admissionregistration.k8s.io": Printer(
        (
            NAME,
            PrinterColumn(
                "Validations",
                "Validations indicates the number of validation rules defined in this configuration",
                "integer",
                cell=lambda policy, _: len(policy["spec"].get("validations", ())),
            ),
            PrinterColumn(
                "ParamKind",
                "ParamKind specifies the kind of resources used to parameterize this policy",
                cell=_parameter_kind,
            ),
            AGE,
        )
    ),
    "validatingadmissionpolicybindings.admissionregistration.k8s.io": Printer(
        (
            NAME,
            PrinterColumn(
                "PolicyName",
                "PolicyName indicates the policy definition which the policy binding binded to",
                cell=at("spec.policyName"),
            ),
            PrinterColumn(
                "ParamRef",
                "ParamRef indicates the param resource which sets the configuration param",
                cell=_parameter_name,
            ),
            AGE,
        )
    ),
}
