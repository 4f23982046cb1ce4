#include "base/mpi_job.hpp"

#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/text.hpp"

namespace gradwire {
namespace {

std::string launcher_variable(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): read only
  return value == nullptr ? "" : value;
}

std::optional<int> number_in(std::string_view text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

std::string content_of(const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

// The parent's process id; 0 if there is none or it is unknown. The name in /proc, in brackets, may contain anything.
pid_t parent_of(pid_t process) {
  const std::string stat = content_of("/proc/" + std::to_string(process) + "/stat");
  const std::size_t name_end = stat.rfind(')');
  const std::size_t state =
      name_end == std::string::npos ? std::string::npos : stat.find_first_not_of(' ', name_end + 1);
  const std::size_t parent = state == std::string::npos ? std::string::npos : stat.find_first_not_of(' ', state + 1);
  if (parent == std::string::npos) {
    return 0;
  }
  return number_in(std::string_view(stat).substr(parent, stat.find(' ', parent) - parent)).value_or(0);
}

// The process that made PMI_FD: the proxy makes this pair of sockets. If that is unknown, returns the parent: the proxy
// is one of the ancestors of this process.
pid_t maker_of_pmi() {
  const auto descriptor = number_in(launcher_variable("PMI_FD"));
  struct ucred maker {};
  socklen_t length = sizeof(maker);
  const bool known =
      descriptor && ::getsockopt(*descriptor, SOL_SOCKET, SO_PEERCRED, &maker, &length) == 0 && maker.pid > 0;
  return known ? maker.pid : ::getppid();
}

// Whether this process has variables that Hydra's proxies set. Other launchers set some of them, too.
bool started_by_hydra() {
  return !launcher_variable("PMI_FD").empty() || !launcher_variable("PMI_PORT").empty() ||
         !launcher_variable("PMI_RANK").empty();
}

// Empty if no process above this one is a proxy of Hydra.
std::string job_of_hydra() {
  constexpr int kMostAbove = 16;
  if (!started_by_hydra()) {
    return "";
  }
  pid_t process = maker_of_pmi();
  for (int i = 0; i < kMostAbove && process > 1; ++i) {
    if (std::string job = hydra_job(content_of("/proc/" + std::to_string(process) + "/cmdline")); !job.empty()) {
      return job;
    }
    process = parent_of(process);
  }
  return "";
}

constexpr std::string_view kSlurmStep = "SLURM_STEP_ID";

// A variable by which a queue names this process's job or, under Slurm, the step of the job.
struct QueueJob {
  std::string_view variable;
  std::string value;  // empty: no queue has started this process
};

QueueJob job_of_queue() {
  for (const char* name : {kSlurmStep.data(), "FLUX_JOB_ID", "PALS_APID", "PMI_JOBID"}) {
    if (std::string value = launcher_variable(name); !value.empty()) {
      return {.variable = name, .value = std::move(value)};
    }
  }
  return {};
}

}  // namespace

std::string hydra_job(std::string_view arguments) {
  std::string_view program = arguments.substr(0, arguments.find('\0'));
  program.remove_prefix(program.rfind('/') == std::string_view::npos ? 0 : program.rfind('/') + 1);
  if (program.find("proxy") == std::string_view::npos) {
    return "";
  }
  std::string place;
  std::string world = "0";
  for (std::string_view last; !arguments.empty();) {
    const std::string_view word = arguments.substr(0, arguments.find('\0'));
    arguments.remove_prefix(word.size() == arguments.size() ? word.size() : word.size() + 1);
    // Intel MPI's proxies have separate arguments for host and port.
    if (last == "--control-port" || last == "--upstream-host" || last == "--upstream-port") {
      place += (place.empty() ? "" : ":") + std::string(word);
    } else if (last == "--pgid") {
      world = word;
    }
    last = word;
  }
  return place.empty() ? "" : "hydra " + place + " " + world;
}

std::string mpi_job() {
  // A namespace of Open MPI 4 is a number of 32 bits, made from the host and the process of mpirun; the address on
  // which mpirun listens separates equal ones. Both variables exist in a job that a rank of another one starts.
  std::string job;
  if (const std::string space = launcher_variable("PMIX_NAMESPACE"); !space.empty()) {
    job = "pmix " + space + " " + launcher_variable("OMPI_MCA_orte_hnp_uri");
  }
  job += job_of_hydra();
  if (!job.empty()) {
    return job;
  }
  const QueueJob queue = job_of_queue();
  if (queue.variable == kSlurmStep) {
    return "slurm " + launcher_variable("SLURM_JOB_ID") + "." + queue.value + " " + launcher_variable("PMI_JOBID");
  }
  return queue.value.empty() ? "" : std::string(queue.variable) + " " + queue.value;
}

LaunchedJob launched_job() {
  const std::string space = launcher_variable("PMIX_NAMESPACE");
  if (!space.empty() && !space.starts_with("slurm.")) {
    // Open MPI 4 numbers worlds; all worlds of one mpirun know the address on which it listens.
    if (const std::string address = launcher_variable("OMPI_MCA_orte_hnp_uri"); !address.empty()) {
      return {.text = "mpirun-" + text::short_hash(address)};
    }
    // A namespace is "prterun-HOST-PROCESS@WORLD". Jobs of a lasting prte differ by that last number alone.
    return {.text = space.starts_with("prterun") ? space.substr(0, space.find('@')) : space};
  }
  if (const std::string job = job_of_hydra(); !job.empty()) {
    return {.text = job.substr(0, job.rfind(' '))};  // without the number of the world
  }
  if (QueueJob queue = job_of_queue(); !queue.value.empty()) {
    return {.text = std::move(queue.value), .is_slurm_step = queue.variable == kSlurmStep};
  }
  const std::string host = launcher_variable("MASTER_ADDR");
  const std::string elastic = launcher_variable("TORCHELASTIC_RUN_ID");
  if (!host.empty()) {
    return {.text = "torch-" + (elastic.empty() || elastic == "none" ? "" : elastic + "-") + host + "-" +
                    launcher_variable("MASTER_PORT")};
  }
  return {};
}

int rank_in_job() {
  const auto rank = number_in(launcher_variable("RANK"));
  return rank && *rank >= 0 ? *rank : launched_rank();
}

int launched_rank() {
  for (const char* name : {"PMIX_RANK", "PMI_RANK", "SLURM_PROCID", "FLUX_TASK_RANK"}) {
    if (const auto rank = number_in(launcher_variable(name)); rank && *rank >= 0) {
      return *rank;
    }
  }
  return -1;
}

}  // namespace gradwire
