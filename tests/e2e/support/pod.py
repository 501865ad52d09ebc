# SPDX-License-Identifier: MIT
"""A pod without a cluster: its containers as processes of this machine, started from the manifests that `kubectl kustomize`
writes. Each has a read-only root, the volumes of the pod, the account, the environment, the arguments of its manifest, and
is process 1 of its own; all share one network, which is the test's alone. The programs are those of the build. Kept to what a
kubelet does where that matters: probes over HTTP, hooks, signals of the image, the grace period, files of ConfigMaps and
Secrets that are exchanged by a symbolic link. Needs root."""

import contextlib
import ctypes
import http.client
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import yaml
from cell import BIN, ROOT, until

KUBERNETES = ROOT / "examples/kubernetes"
CLONE_NEWNET = 0x40000000


def has_namespaces():
    """Whether this process may make those of a container, as root of a whole machine may."""
    command = ["unshare", "--mount", "--pid", "--net", "--fork", "sh", "-c", "ip link set lo up && mount -t overlay -o lowerdir=/usr:/etc overlay /mnt"]
    return os.geteuid() == 0 and subprocess.run(command, capture_output=True).returncode == 0


def kubectl_minor():
    version = subprocess.run(["kubectl", "version", "--client", "-o", "json"], capture_output=True, text=True, check=True).stdout
    return int(re.match(r"\d+", json.loads(version)["clientVersion"]["minor"])[0])


def for_an_old_kustomize(top):
    """kubectl before 1.21, as Debian 12 has it, has other words for folders among the resources and for patches."""
    for file in top.rglob("kustomization.yaml"):
        content = yaml.safe_load(file.read_text())
        folders = [r for r in content.get("resources", ()) if not r.endswith(".yaml")]
        content["bases"] = folders
        content["resources"] = [r for r in content.get("resources", ()) if r not in folders]
        content["patchesStrategicMerge"] = [patch["path"] for patch in content.pop("patches", ())]
        file.write_text(yaml.safe_dump(content))


def kustomize(folder):
    """All manifests of a folder of examples/kubernetes."""
    with tempfile.TemporaryDirectory() as copy:
        if kubectl_minor() < 21:
            for name in ("haproxy", "examples"):
                shutil.copytree(ROOT / name, Path(copy, name))
            for_an_old_kustomize(Path(copy))
            folder = Path(copy) / Path(folder).relative_to(ROOT)
        done = subprocess.run(["kubectl", "kustomize", str(folder)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [m for m in yaml.safe_load_all(done.stdout) if m]


def network_of_its_own(test):
    """Runs it in a thread with an empty network but for loopback; what it starts is there, too."""
    failed = []

    def run():
        try:
            assert ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno())
            subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
            test()
        except BaseException as error:  # noqa: BLE001 # the caller's thread is told
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]


def images():
    """Of the Containerfile: {name: (entry point, signal that stops it, account)}."""
    found = {}
    for part in re.split(r"^FROM ", (KUBERNETES / "Containerfile").read_text(), flags=re.M)[2:]:
        name = re.match(r"\S+ AS (\S+)", part)[1]
        entry = yaml.safe_load(re.search(r"^ENTRYPOINT (.*)$", part, re.M)[1])
        stop = re.search(r"^STOPSIGNAL (\S+)$", part, re.M)
        user = re.search(r"^USER (\S+)$", part, re.M)[1]
        found[name] = (entry, getattr(signal, stop[1]) if stop else signal.SIGTERM, user)
    return found


class Container:
    def __init__(self, pod, spec):
        self.pod, self.spec, self.name = pod, spec, spec["name"]
        # localhost/cellgate-haproxy:0.1.0
        image = spec["image"].rpartition("/")[2].partition(":")[0].removeprefix("cellgate-")
        self.entry, self.stop_signal, _ = images()[image]
        self.root = pod.folder / f"root-{self.name}"
        self.log = pod.folder / f"{self.name}.log"
        self.process = self.ended = None

    @property
    def account(self):
        return {**self.pod.spec["securityContext"], **self.spec["securityContext"]}

    def command(self, words):
        """As that account, without a privilege. HAProxy may be another version than Debian's."""
        haproxy = shlex.split(os.environ.get("HAPROXY", "haproxy"))
        if words[0] == "/usr/sbin/haproxy":
            words = [shutil.which(haproxy[0]), *haproxy[1:], *words[1:]]
        account = self.account
        assert account["runAsNonRoot"] and account["runAsUser"] > 0
        assert account["allowPrivilegeEscalation"] is False and account["capabilities"] == {"drop": ["ALL"]}
        groups = ["--groups", str(account["fsGroup"])] if "fsGroup" in account else ["--clear-groups"]
        return ["setpriv", "--reuid", str(account["runAsUser"]), "--regid", str(account["runAsGroup"]), *groups, "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all", *words]

    def mounts(self):
        """A shell's lines: the image's root with the volumes in it, all of it read-only that the manifest says is."""
        root = self.root
        yield f"mount -t tmpfs -o mode=755 none {root}"
        yield f"mkdir -p {root}/usr {root}/etc/ssl/certs {root}/proc {root}/dev {root}/run {root}/var/tmp {root}/var/run {root}/tmp"
        # the programs of the build, at the places of the image
        yield f"mount -t overlay -o lowerdir={self.pod.image}/usr:/usr overlay {root}/usr"
        for link in ("bin", "sbin", "lib", "lib64"):
            yield f"ln -s usr/{link} {root}/{link}"
        yield f"cp {self.pod.image}/etc/passwd {self.pod.image}/etc/group {root}/etc/"
        yield f"cp {self.pod.image}/etc/ca-certificates.crt {root}/etc/ssl/certs/"
        yield f"mount -t proc proc {root}/proc; mount --rbind /dev {root}/dev"
        yield f"[ ! -d /var/tmp/cellgate-haproxy ] || {{ mkdir {root}/var/tmp/cellgate-haproxy; mount --rbind /var/tmp/cellgate-haproxy {root}/var/tmp/cellgate-haproxy; }}"
        for mount in self.spec["volumeMounts"]:
            place = f"{root}{mount['mountPath']}"
            source = self.pod.volumes[mount["name"]]
            if "subPath" in mount:
                yield f"mkdir -p {Path(place).parent}; touch {place}; mount --bind {(source / mount['subPath']).resolve()} {place}"
            else:
                yield f"mkdir -p {place}; mount --bind {source} {place}"
            if mount.get("readOnly"):
                yield f"mount -o remount,bind,ro {place}"
        if self.spec["securityContext"]["readOnlyRootFilesystem"]:
            yield f"mount -o remount,ro {root}"

    def start(self):
        self.root.mkdir(exist_ok=True)
        environment = {"PATH": "/usr/sbin:/usr/bin", **self.pod.environment, **{e["name"]: str(e["value"]) for e in self.spec.get("env", ())}}
        last = shlex.join(["chroot", str(self.root), "env", "-i", *(f"{n}={v}" for n, v in environment.items()), *self.command(self.entry + self.spec.get("args", []))])
        script = "\n".join(["set -e", *self.mounts(), f"exec {last}"])
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(["unshare", "--mount", "--pid", "--fork", "--kill-child=KILL", "sh", "-c", script], stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        self.ended = None
        threading.Thread(target=self._wait, args=(self.process,), daemon=True).start()

    def _wait(self, process):
        process.wait()
        self.ended = time.monotonic()

    @property
    def pid(self):
        """Of its process 1, as this machine numbers it."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return int(children[0]) if children else None

    def run(self, words):
        """A process in it, as `kubectl exec` does. The program may have ended."""
        pid = self.pid
        if not pid:
            return None
        inside = ["nsenter", "--target", str(pid), "--mount", "--pid", "chroot", str(self.root), *self.command(words)]
        return subprocess.run(inside, capture_output=True, text=True, timeout=self.pod.grace + 30)

    def signal(self, number):
        with contextlib.suppress(ProcessLookupError):
            if self.process.poll() is None and (pid := self.pid):
                os.kill(pid, number)

    def ask(self, probe):
        """The status that the probe gets, or 0."""
        get = self.spec[probe]["httpGet"]
        port = next((p["containerPort"] for p in self.spec.get("ports", ()) if p["name"] == get["port"]), get["port"])
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=self.spec[probe].get("timeoutSeconds", 1))
        with contextlib.closing(connection):
            try:
                connection.request("GET", get["path"], headers={"Host": f"10.1.2.3:{port}", "User-Agent": "kube-probe/1.32"})
                return connection.getresponse().status
            except OSError:
                return 0

    def alive(self):
        return self.process and self.process.poll() is None

    def end(self, grace_ends, told):
        """What a kubelet does with each container of a pod that is deleted, at the same time."""
        hook = self.spec.get("lifecycle", {}).get("preStop", {}).get("exec")
        if hook and self.alive():
            done = self.run(hook["command"])
            told[self.name] = (time.monotonic(), done and done.returncode, done and done.stderr)
        self.signal(self.stop_signal)
        while self.alive() and time.monotonic() < grace_ends:
            time.sleep(0.02)
        self.killed = self.alive()
        self.signal(signal.SIGKILL)


class Pod:
    """files: {name of a ConfigMap or Secret: {key: content}}, instead of what the manifests have, or beside it. cluster: what a pod gets
    to reach the API server with, {file: content}; environment: what all its containers get."""

    def __init__(self, folder, manifests, files, cluster=None, environment=None):
        self.folder = Path(folder)
        self.folder.chmod(0o755)
        self.spec = next(m for m in manifests if m["kind"] == "Deployment")["spec"]["template"]["spec"]
        self.grace = self.spec["terminationGracePeriodSeconds"]
        self.group = self.spec["securityContext"].get("fsGroup", 0)
        self.cluster, self.environment = cluster or {}, environment or {}
        self.files = {"kube-root-ca.crt": {"ca.crt": self.cluster["ca.crt"]}} if cluster else {}
        for manifest in manifests:
            if manifest["kind"] == "ConfigMap":
                self.files[manifest["metadata"]["name"]] = {k: v.encode() for k, v in manifest["data"].items()}
        for name, content in files.items():
            # a generated name has a hash behind
            known = next((n for n in self.files if re.fullmatch(re.escape(name) + r"(-[a-z0-9]{10})?", n)), name)
            self.files.setdefault(known, {}).update(content)
        self.image = self.folder / "image"
        self.make_image()
        self.volumes = {v["name"]: self.make_volume(v) for v in self.spec["volumes"]}
        self.containers = {c["name"]: Container(self, c) for c in self.spec["containers"]}

    def make_image(self):
        for name in ("cellgate", "cellgate-agent", "cellgate-relay"):
            place = self.image / "usr/bin" / name
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(BIN / name, place)
        (self.image / "etc").mkdir()
        text = (KUBERNETES / "image-files").read_text()
        accounts = re.findall(r"[a-z-]+:x:\d+:\d+::/:/nologin", text)
        assert "cellgate-relay:x:10002:10000::/:/nologin" in accounts
        (self.image / "etc/passwd").write_text("\n".join(accounts) + "\n")
        # HAProxy wants one that is not empty
        system = Path("/etc/ssl/certs/ca-certificates.crt")
        (self.image / "etc/ca-certificates.crt").write_bytes(system.read_bytes() if system.exists() else self.files["cellgate-tls"]["tls.crt"])
        (self.image / "etc/group").write_text("root:x:0:\ncellgate:x:10000:\n")

    # ---- volumes ----

    def contents(self, volume):
        """{path: bytes} of what is projected."""
        sources = volume["projected"]["sources"] if "projected" in volume else [{k: v for k, v in volume.items() if k != "name"}]
        found = {}
        for source in sources:
            kind, given = next(iter(source.items()))
            if kind in ("serviceAccountToken", "downwardAPI"):
                name = "token" if kind == "serviceAccountToken" else "namespace"
                found |= {name: self.cluster[name]} if self.cluster else {}
                continue
            name = given.get("name") or given.get("secretName")
            data = self.files.get(name)
            if data is None:
                assert name == "kube-root-ca.crt", f"the volume {volume['name']} needs {name}"
                continue
            found |= {i["path"]: data[i["key"]] for i in given["items"]} if "items" in given else data
        return found

    def make_volume(self, volume):
        place = self.folder / "volumes" / volume["name"]
        place.mkdir(parents=True)
        # with an fsGroup all is of that group, and what is made in it; without one of root's, and of the group of who makes it
        os.chown(place, 0, self.group)
        place.chmod(0o2777 if self.group else 0o777)
        if "emptyDir" not in volume:
            self.write(place, volume)
        return place

    def write(self, place, volume):
        """As a kubelet: a folder that nobody sees, then one link for all of it."""
        contents, group = self.contents(volume), self.group
        mode = next(iter(volume[k] for k in ("projected", "configMap", "secret") if k in volume)).get("defaultMode", 0o644) | (0o440 if group else 0)
        hidden = place / f"..{time.monotonic_ns()}"
        hidden.mkdir(mode=0o750)
        os.chown(hidden, 0, group)
        hidden.chmod(0o750 if group else 0o755)
        for path, content in contents.items():
            file = hidden / path
            if not file.parent.exists():
                file.parent.mkdir()
                os.chown(file.parent, 0, group)
            file.write_bytes(content)
            os.chown(file, 0, group)
            file.chmod(mode)
            top = path.partition("/")[0]
            if not (place / top).is_symlink():
                (place / top).symlink_to(f"..data/{top}")
        (place / "..new").symlink_to(hidden.name)
        (place / "..new").rename(place / "..data")

    def update(self, name, content):
        """`kubectl apply` of a Secret or a ConfigMap, and the kubelet has seen it."""
        self.files[name].update(content)
        for volume in self.spec["volumes"]:
            if name in str(volume):
                self.write(self.volumes[volume["name"]], volume)

    # ---- life ----

    def start(self, *names):
        for name in names or self.containers:
            self.containers[name].start()

    def is_ready(self):
        return all(c.alive() and ("readinessProbe" not in c.spec or c.ask("readinessProbe") == 200) for c in self.containers.values())

    def await_ready(self):
        until(self.is_ready, 20, "the pod does not become ready")

    def delete(self):
        """From now on as a kubelet ends it; returns at once. `told` of the thread: when each hook ended, and how."""
        told = {}
        ends = time.monotonic() + self.grace
        threads = [threading.Thread(target=c.end, args=(ends, told)) for c in self.containers.values()]
        for thread in threads:
            thread.start()

        def wait():
            for thread in threads:
                thread.join()
            return told

        return wait

    def kill(self):
        for container in self.containers.values():
            if container.process and container.process.poll() is None:
                # its process 1, and with that the rest: it has changed its user, and the kernel forgets --kill-child then
                container.signal(signal.SIGKILL)
                container.process.kill()
                container.process.wait()

    def logs(self):
        assert not [line for line in Path("/proc/self/mounts").read_text().splitlines() if str(self.folder) in line], "a mount was left"
        return "\n".join(f"---- {c.name}\n" + c.log.read_text(errors="replace")[-3000:] for c in self.containers.values() if c.log.exists())
