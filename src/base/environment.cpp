#include "base/environment.hpp"

#include <array>
#include <cstdlib>

#include "base/metrics_target.hpp"
#include "base/record_target.hpp"
#include "base/secret_file.hpp"
#include "base/trace_target.hpp"
#include "base/units.hpp"
#include "gradwire/error.hpp"

namespace gradwire {
namespace {

constexpr std::array kVariables{
    EnvironmentVariable{"GRADWIRE_CHOICES", "file", "none",
                        "what codec auto chose for replaced calls: written there, or followed if the file exists"},
    EnvironmentVariable{
        "GRADWIRE_CODEC", "codec", "none",
        "lossy codec of replaced calls: auto (int8 if faster), int8, int4, ...; none: they are observed"},
    EnvironmentVariable{"GRADWIRE_DISABLE", "0 | 1", "0",
                        "1 on any rank: all replaced calls go to the library, not even timed; sessions do not read it"},
    EnvironmentVariable{"GRADWIRE_DRY_RUN", "0 | 1", "0",
                        "1: replaced calls pass through and are counted as they would have been sent"},
    EnvironmentVariable{"GRADWIRE_EMULATED_LINK", "rate[,latency]", "none",
                        "set by gradwire run --link: the link that it emulates, which reports name"},
    EnvironmentVariable{"GRADWIRE_ERROR_FEEDBACK", "auto | on | off", "auto",
                        "off: what the codec leaves out is not added later (run --no-feedback)"},
    EnvironmentVariable{"GRADWIRE_F64", "0 | 1", "0", "1: GRADWIRE_CODEC also compresses sums of f64 (run --f64)"},
    EnvironmentVariable{"GRADWIRE_FILE_IO", "auto | io_uring | threads", "auto",
                        "how scratch files are read and written; auto: io_uring if allowed"},
    EnvironmentVariable{"GRADWIRE_JOB", "text", "made by gradwire",
                        "name of the job in metrics and histories and their files; the same on all ranks"},
    EnvironmentVariable{"GRADWIRE_JOIN", "file", "none",
                        "this process joins the job that wrote this file, without MPI (gradwire run --join)"},
    EnvironmentVariable{"GRADWIRE_KEY", "file:path", "none",
                        "key of the job, made by gradwire key new: encrypts what ranks send, or is refused"},
    EnvironmentVariable{"GRADWIRE_LET_JOIN", "file", "none",
                        "processes may join this job of elastic_main by this file (gradwire run --let-join)"},
    EnvironmentVariable{"GRADWIRE_LOG", "debug | info | warn | error | off", "warn",
                        "least severe log line that is printed, to standard error"},
    EnvironmentVariable{"GRADWIRE_MAX_ERROR", "share", "none",
                        "calls whose sum has a larger relative error pass from then on (run --max-error)"},
    EnvironmentVariable{"GRADWIRE_MEMORY_LIMIT", "size", "what is left",
                        "most host memory of a process's page pool, such as 4GiB; the policy may lower it"},
    EnvironmentVariable{"GRADWIRE_METRICS", "file:dir, http:[address:]port[+rank], otlp:dir, unix:dir", "none",
                        "where every rank's metrics go, one or more"},
    EnvironmentVariable{"GRADWIRE_METRICS_TOKEN", "file:path", "none",
                        "metrics over HTTP need the bearer token in this file, which only its owner may read"},
    EnvironmentVariable{"GRADWIRE_NODE_KERNEL", "0 | 1", "none",
                        "1: sessions sum inside a host by one kernel; none: only the drop-in for NCCL may; 0: never"},
    EnvironmentVariable{"GRADWIRE_POLICY", "file", "none", "policy of replaced calls, instead of GRADWIRE_CODEC"},
    EnvironmentVariable{"GRADWIRE_RECORD_GRADIENTS", "directory[:steps=N]", "none",
                        "rank 0 writes gradients of 5 steps, or N, there (run --record-gradients)"},
    EnvironmentVariable{"GRADWIRE_REGISTER", "address", "none",
                        "set by gradwire run: where ranks report that they have the drop-in"},
    EnvironmentVariable{"GRADWIRE_REPORT", "directory", "none",
                        "every rank's history goes there, for gradwire report; FILE.json: replaced calls, by rank 0"},
    EnvironmentVariable{"GRADWIRE_RESTART", "number", "0",
                        "set by gradwire run --restarts: how many times it has restarted this job"},
    EnvironmentVariable{"GRADWIRE_SIMD", "auto | scalar", "auto",
                        "scalar: codecs use the portable reference core instead of the widest SIMD of this CPU"},
    EnvironmentVariable{"GRADWIRE_SLOW", "warn, off or share", "warn",
                        "names a rank that others wait for during more than 10% of a step, or this share"},
    EnvironmentVariable{"GRADWIRE_SOCKET_IFNAME", "interface", "all",
                        "such as eth0: for TCP of the PyTorch backend, of elastic jobs and of gradwire run"},
    EnvironmentVariable{"GRADWIRE_STAGED", "0 | 1", "0",
                        "1: device memory goes through host memory even if MPI could send it directly"},
    EnvironmentVariable{"GRADWIRE_THREADS", "job | multiple", "job",
                        "multiple: initialises MPI with it, so that nonblocking calls can be compressed"},
    EnvironmentVariable{"GRADWIRE_TIMEOUT", "duration", "none",
                        "how long a compressed call waits for other ranks before it fails; none: as long as MPI does"},
    EnvironmentVariable{"GRADWIRE_TORCH_TRANSPORT", "tcp | mpi", "tcp",
                        "what the PyTorch backend sends by: its own connections, or MPI under mpirun"},
    EnvironmentVariable{"GRADWIRE_TRACE", "directory[:steps=first-last]", "none",
                        "every rank writes its events there, of all steps or of these"},
    EnvironmentVariable{"GRADWIRE_WARN_AFTER", "duration", "60s",
                        "how long a replaced call waits before a line names the ranks that it waits for"},
};

// Whether "a | b | c" has the value.
bool allows(std::string_view values, std::string_view value) {
  while (!values.empty()) {
    const std::size_t end = values.find(" | ");
    if (values.substr(0, end) == value) {
      return true;
    }
    values = end == std::string_view::npos ? std::string_view() : values.substr(end + 3);
  }
  return false;
}

}  // namespace

std::span<const EnvironmentVariable> environment_variables() noexcept { return kVariables; }

std::optional<std::string> environment(std::string_view name) {
  for (const EnvironmentVariable& variable : kVariables) {
    if (variable.name == name) {
      const char* value = std::getenv(std::string(name).c_str());  // NOLINT(concurrency-mt-unsafe): read only
      if (value == nullptr || *value == '\0') {
        return std::nullopt;
      }
      return std::string(value);
    }
  }
  throw Error(ErrorCode::internal, "environment variable " + std::string(name) + " is not in the table");
}

bool environment_flag(std::string_view name) {
  const std::optional<std::string> value = environment(name);
  if (value && *value != "0" && *value != "1") {
    throw Error(ErrorCode::invalid_argument, std::string(name) + " is \"" + *value + "\"; write 0 or 1");
  }
  return value == "1";
}

std::optional<double> environment_slow(double usual) {
  const std::string value = environment("GRADWIRE_SLOW").value_or("warn");
  if (value == "off") {
    return std::nullopt;
  }
  if (value == "warn") {
    return usual;
  }
  try {
    return parse_fraction(value);
  } catch (const Error& error) {
    throw Error(error.code(), "GRADWIRE_SLOW is \"" + value +
                                  "\"; write warn, off, or the share of a step from which on a rank that others wait "
                                  "for is slow, such as 20%");
  }
}

std::vector<std::string> environment_problems(ObservingToo observing) {
  std::vector<std::string> problems;
  const auto look = [&](const auto& check) {
    try {
      check();
    } catch (const Error& error) {
      problems.emplace_back(error.what());
    }
  };
  if (observing == ObservingToo::yes) {
    look([] { static_cast<void>(environment_slow(1)); });
    look([] { static_cast<void>(MetricsTarget::parse(environment("GRADWIRE_METRICS").value_or("file:/"))); });
    look([] {
      static_cast<void>(
          secret_path(environment("GRADWIRE_METRICS_TOKEN").value_or("file:/"), "GRADWIRE_METRICS_TOKEN"));
    });
    look([] { static_cast<void>(TraceTarget::parse(environment("GRADWIRE_TRACE").value_or("/"))); });
    look([] { static_cast<void>(RecordTarget::parse(environment("GRADWIRE_RECORD_GRADIENTS").value_or("/"))); });
  }
  for (const EnvironmentVariable& variable : kVariables) {
    const std::optional<std::string> value = environment(variable.name);
    const bool choice = variable.values.find(" | ") != std::string_view::npos;
    if (value && choice && !allows(variable.values, *value)) {
      problems.push_back(std::string(variable.name) + " is \"" + *value + "\"; write one of " +
                         std::string(variable.values));
    }
    if (value && (variable.values == "duration" || variable.values == "share" || variable.values == "size")) {
      look([&] {
        try {
          variable.values == "share"  ? static_cast<void>(parse_fraction(*value))
          : variable.values == "size" ? static_cast<void>(parse_bytes(*value))
                                      : static_cast<void>(parse_duration(*value));
        } catch (const Error& error) {
          throw Error(error.code(), std::string(variable.name) + ": " + error.what());
        }
      });
    }
  }
  return problems;
}

void check_environment(ObservingToo observing) {
  if (const std::vector<std::string> problems = environment_problems(observing); !problems.empty()) {
    throw Error(ErrorCode::invalid_argument, problems.front());
  }
}

}  // namespace gradwire
