# Makes the hosts of a test, each a network namespace. Scripts source this file. The caller sets `name`, a prefix of its
# own, and `folder`, whose *.txt are shown if the test fails. Host 0 is a switch to which make_hosts connects hosts 1 to
# N.
# shellcheck shell=bash disable=SC2154 # name and folder are the caller's
skip() {
  echo "skipped: $*"
  exit 77
}
die() {
  echo "FAILED: $*"
  tail -n 25 "$folder"/*.txt
  exit 1
}
# The caller runs this at exit. It ends the processes on the hosts.
remove_hosts() {
  local host process
  for host in 0 1 2 3 4; do
    for process in $(ip netns pids "$name-$host" 2>/dev/null); do kill -9 "$process" 2>/dev/null; done
    ip netns del "$name-$host" 2>/dev/null
  done
}
make_switch() {
  [ "$(id -u)" = 0 ] || skip "network namespaces need root"
  command -v ip >/dev/null || skip "ip (iproute2) is not installed"
  ip netns add "$name-0" 2>/dev/null || skip "this kernel or container allows no network namespaces"
  ip -n "$name-0" link set lo up
}
make_hosts() { # COUNT: called after make_switch
  local host
  { ip -n "$name-0" link add switch type bridge && ip -n "$name-0" link set switch up; } || skip "no bridges here"
  for host in $(seq "$1"); do
    ip netns add "$name-$host"
    ip -n "$name-$host" link add net0 type veth peer name "port$host" netns "$name-0" || skip "no veth links here"
    ip -n "$name-0" link set "port$host" master switch up
    ip -n "$name-$host" addr add "10.77.0.$host/24" dev net0
    ip -n "$name-$host" link set net0 up
    ip -n "$name-$host" link set lo up
  done
}
# destroy HOST LOCAL PEER resets that connection at its end LOCAL.
destroy() {
  ip netns exec "$name-$1" ss -K -tnH "src $2 dst $3" >/dev/null
  [ -z "$(ip netns exec "$name-$1" ss -tnH state established "src $2 dst $3")" ] || skip "this kernel destroys no sockets (ss -K)"
}
