#include "cli/emulated_link.hpp"

#include <linux/capability.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <system_error>

#include "base/command_line.hpp"
#include "base/text.hpp"
#include "base/units.hpp"
#include "cli/launch.hpp"
#include "cli/named_hosts.hpp"
#include "cli/process.hpp"
#include "gradwire/error.hpp"

namespace gradwire::cli {
namespace {

[[noreturn]] void refuse_link(const std::string& what) { throw Error(ErrorCode::invalid_argument, "--link: " + what); }

// What makes both MPI libraries send over TCP and the loopback device, even between ranks of one host. Values of the
// user's environment are replaced, since they could lead around the link; on mpirun's command line they are refused.
constexpr std::array<std::pair<const char*, const char*>, 8> kOverTcp{{
    {"OMPI_MCA_pml", "ob1"},                // Open MPI: no UCX, ...
    {"OMPI_MCA_btl", "tcp,self"},           // ... no shared memory, ...
    {"OMPI_MCA_btl_tcp_if_include", "lo"},  // ... and the device that it leaves out otherwise
    {"OMPI_MCA_btl_tcp_if_exclude", ""},    // only one of the two may be set
    {"OMPI_MCA_oob_tcp_if_include", "lo"},  // for its daemons
    {"UCX_TLS", "tcp,self"},                // MPICH over UCX
    {"UCX_NET_DEVICES", "lo"},              //
    {"MPIR_CVAR_NOLOCAL", "1"},             // MPICH: ranks of one host are as far apart as others
}};

// Refuses `setting`, the words of a command that give a variable a value, where the link needs another one.
void check_setting(std::string_view name, std::string_view value, const std::string& setting) {
  const auto* const needed =
      std::find_if(kOverTcp.begin(), kOverTcp.end(), [&](const auto& known) { return name == known.first; });
  if (needed != kOverTcp.end() && value != needed->second) {
    refuse_link("the command has " + text::printable(setting) +
                ", which could lead messages around the emulated link; leave that out, since gradwire run itself "
                "tells MPI to send over TCP");
  }
}

// "NAME=VALUE"; a name alone hands on the value in this process's environment.
void check_assignment(const std::string& option, const std::string& assignment) {
  if (const std::size_t equal = assignment.find('='); equal != std::string::npos) {
    check_setting(assignment.substr(0, equal), assignment.substr(equal + 1), option + " " + assignment);
  }
}

// Looks at all words behind the launcher, since ":" separates programs with options of their own.
void check_settings(const std::vector<std::string>& command, std::size_t launcher) {
  for (std::size_t i = launcher + 1; i + 1 < command.size(); ++i) {
    const std::string& option = command[i];
    const std::string& name = command[i + 1];
    const std::string value = i + 2 < command.size() ? command[i + 2] : "";
    const std::string setting = option + " " + name + " " + value;
    const bool environment = option == "-genv" || option == "-env";
    if (is_mca(option)) {
      check_setting("OMPI_MCA_" + name, value, setting);
    } else if (is_export(option) || (environment && name.find('=') != std::string::npos)) {
      check_assignment(option, name);
    } else if (environment) {
      check_setting(name, value, setting);
    }
  }
}

// Runs a program of iproute2. Returns an empty text if it succeeded, else the first line of what it printed.
std::string failure_of(const std::vector<std::string>& command) {
  const ProgramOutput output = run_and_read(command, StandardError::taken);
  if (output.status == 0) {
    return "";
  }
  const std::string line = text::printable(output.text.substr(0, output.text.find('\n')));
  return command.front() + (line.empty() ? " failed" : ": " + line);
}

// tc and ip are in a folder of root's that is not in every user's PATH.
std::optional<std::string> find_tool(const std::string& name) {
  for (const std::string& path : {name, "/usr/sbin/" + name, "/sbin/" + name}) {
    if (find_program(path)) {
      return path;
    }
  }
  return std::nullopt;
}

bool write_map(const char* file, const std::string& text) {
  std::ofstream map(file);
  map << text << std::flush;
  return static_cast<bool>(map);
}

// In a user namespace of its own a process has all rights over its network, but programs that it starts have none.
// Hands CAP_NET_ADMIN on to those, or takes it from them again.
void pass_on_network_rights(bool pass) {
  if (!pass) {
    ::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    return;
  }
  __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> sets{};
  if (::syscall(SYS_capget, &header, sets.data()) == 0) {
    sets[0].inheritable |= 1U << CAP_NET_ADMIN;
    ::syscall(SYS_capset, &header, sets.data());
    ::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_NET_ADMIN, 0, 0);
  }
}

// Returns an empty text, or why there is no namespace.
std::string make_namespace() {
  const uid_t user = ::geteuid();
  const gid_t group = ::getegid();
  if (user == 0 && ::unshare(CLONE_NEWNET) == 0) {
    return "";
  }
  if (::unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) {
    return "this system lets this user make no network namespace (" + text::reason_of(errno) + ")";
  }
  const std::string own = std::to_string(user) + " " + std::to_string(user) + " 1\n";
  const std::string own_group = std::to_string(group) + " " + std::to_string(group) + " 1\n";
  if (!write_map("/proc/self/setgroups", "deny") || !write_map("/proc/self/uid_map", own) ||
      !write_map("/proc/self/gid_map", own_group)) {
    return "this system lets this user map no ids in a namespace (" + text::reason_of(errno) + ")";
  }
  return "";
}

// The queueing disciplines as tc takes them. A burst passes an idle link at once, so it is as small as still lets
// traffic of both directions reach the rate, which was found by trial.
std::vector<std::vector<std::string>> shaping(const EmulatedLink& link, const std::string& ip, const std::string& tc) {
  constexpr double kGigabit = 1e9 / 8;
  constexpr double kBurst = 128;  // kB, of 1 Gbit/s
  constexpr double kLeast = 32;
  constexpr int kEthernet = 1500;  // packets of a network, so that a burst holds many
  const auto burst = static_cast<int>(std::max(kLeast, kBurst * std::pow(link.bytes_per_second / kGigabit, 1.3)));
  const std::string rate = std::to_string(static_cast<std::uint64_t>(link.bytes_per_second * 8)) + "bit";
  std::vector<std::vector<std::string>> commands{
      {ip, "link", "set", "dev", "lo", "mtu", std::to_string(kEthernet)},
      {ip, "link", "set", "dev", "lo", "up"},
  };
  std::vector<std::string> parent{"root"};
  if (link.latency.count() > 0) {
    commands.push_back({tc, "qdisc", "replace", "dev", "lo", "root", "handle", "1:", "netem", "delay",
                        std::to_string(link.latency.count() / 1000) + "us", "limit", "1000000"});
    parent = {"parent", "1:1", "handle", "10:"};
  }
  commands.push_back({tc, "qdisc", "replace", "dev", "lo"});
  std::vector<std::string>& shape = commands.back();
  shape.insert(shape.end(), parent.begin(), parent.end());
  shape.insert(shape.end(), {"tbf", "rate", rate, "burst", std::to_string(burst) + "kb", "latency", "50ms"});
  return commands;
}

// The command line of this process, as a line that a shell runs again; the user fills in its secrets.
std::string line_to_run_again() {
  std::string line;
  for (const std::string& word : without_secrets(own_command_line())) {
    line += (line.empty() ? "" : " ") + text::shell_word(word);
  }
  return line;
}

}  // namespace

EmulatedLink parse_emulated_link(std::string_view text) {
  const std::size_t comma = text.find(',');
  EmulatedLink link{.text = std::string(text)};
  try {
    link.bytes_per_second = parse_rate(text.substr(0, comma));
    if (comma != std::string_view::npos) {
      link.latency = parse_duration(text.substr(comma + 1));
    }
  } catch (const Error& error) {
    refuse_link(std::string(error.what()) +
                "; write a rate and, if packets shall be late, a latency: 1Gbit/s or 1Gbit/s,5ms");
  }
  constexpr double kLeast = 1000;
  constexpr double kMost = 100e9 / 8;
  constexpr std::chrono::seconds kLongest{10};
  if (link.bytes_per_second < kLeast) {
    refuse_link(std::string(text) + " is less than 8kbit/s, over which no MPI job would start");
  }
  if (link.bytes_per_second > kMost) {
    refuse_link(std::string(text) +
                " is more than 100Gbit/s, which no loopback device reaches; write the rate of the "
                "network that you want to know about");
  }
  if (link.latency > kLongest) {
    refuse_link(std::string(text) + " delays packets by more than 10s, with which no MPI job would start");
  }
  return link;
}

void check_link_command(const std::vector<std::string>& command, std::optional<std::size_t> launcher,
                        std::optional<Library> library) {
  const std::string instead = "; it emulates a link between the ranks of one host";
  if (!launcher && starts_by_slurm(command)) {
    refuse_link("srun has its ranks started by a daemon, outside of the emulated link" + instead +
                ", so start them by mpirun");
  }
  if (const std::string nodes = variable("SLURM_JOB_NUM_NODES"); !nodes.empty() && nodes != "1") {
    refuse_link("this Slurm job has " + nodes + " hosts" + instead);
  }
  if (!launcher || !library) {
    return;
  }
  const NamedHosts named(command, *launcher, *library);
  for (const NamedHosts::Host& host : named.hosts()) {
    if (!is_this_host(host.name)) {
      refuse_link("the command names the host " + text::printable(host.name) + instead);
    }
  }
  check_settings(command, *launcher);
}

void enter_emulated_link(const EmulatedLink& link) {
  const auto unsupported = [&](const std::string& why, const std::string& instead) {
    throw Error(ErrorCode::unsupported, "--link " + link.text + ": " + why + "; " + instead);
  };
  const auto ip = find_tool("ip");
  const auto tc = find_tool("tc");
  if (!ip || !tc) {
    unsupported(std::string(ip ? "tc" : "ip") + " is missing, which sets up the link", "install the package iproute2");
  }
  const bool root = ::geteuid() == 0;
  if (const std::string why = make_namespace(); !why.empty()) {
    unsupported(why, root ? "root of a container needs the capability SYS_ADMIN for it (docker run --cap-add=SYS_ADMIN)"
                          : "root may: sudo " + line_to_run_again());
  }
  pass_on_network_rights(true);
  for (const std::vector<std::string>& words : shaping(link, *ip, *tc)) {
    const std::string failure = failure_of(words);
    const bool latency = std::find(words.begin(), words.end(), "netem") != words.end();
    if (!failure.empty() && latency) {
      unsupported("this kernel delays no packets (" + failure + ")",
                  "write the rate alone: --link " + link.text.substr(0, link.text.find(',')));
    }
    if (!failure.empty()) {
      unsupported("the link cannot be shaped (" + failure + ")",
                  root ? "this kernel may lack the queueing discipline tbf" : "root may: sudo " + line_to_run_again());
    }
  }
  pass_on_network_rights(false);
  for (const auto& [name, value] : kOverTcp) {
    if (*value == '\0') {
      ::unsetenv(name);  // NOLINT(concurrency-mt-unsafe): one thread
    } else {
      ::setenv(name, value, 1);  // NOLINT(concurrency-mt-unsafe): one thread
    }
  }
}

std::uint64_t bytes_over_loopback() {
  std::ifstream devices("/proc/self/net/dev");  // of the namespace of this process; /sys may show another one
  for (std::string line; std::getline(devices, line);) {
    const std::size_t colon = line.find("lo:");
    if (colon == std::string::npos || line.find_first_not_of(' ') != colon) {
      continue;
    }
    std::istringstream numbers(line.substr(colon + 3));
    std::uint64_t received = 0;
    numbers >> received;  // the first column; what the device sends, it receives
    return received;
  }
  return 0;
}

}  // namespace gradwire::cli
