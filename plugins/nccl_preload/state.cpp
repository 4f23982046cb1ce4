#include "plugins/nccl_preload/state.hpp"

#include <unistd.h>

#include <cstdio>
#include <exception>
#include <fstream>
#include <string>

#include "base/environment.hpp"
#include "gradwire/policy.hpp"
#include "plugins/nccl_preload/real.hpp"

GRADWIRE_NCCL_DECLARE(ncclResult_t, ncclGetVersion, (int*))

namespace gradwire::nccl_preload {
namespace {

/// The process that counts; a child that forks off inherits the counters, and is none.
const pid_t kProcess = getpid();

/// A mistake in the environment or the policy disables, as in the drop-in for MPI; it never ends the job.
shim::Settings read_settings() {
  shim::Settings settings{.device_path = false};
  try {
    settings.disabled = environment_flag("GRADWIRE_DISABLE");
    if (const auto file = environment("GRADWIRE_POLICY"); file) {
      settings.floor_bytes = Policy::load(*file).floor;
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gradwire: %s; NCCL calls pass through\n", error.what());
    settings.disabled = true;
  }
  return settings;
}

std::string ask_library_name() {
  int version = 0;
  if (GRADWIRE_NCCL_REAL(ncclGetVersion)(&version) != ncclSuccess) {
    return "NCCL";
  }
  return "NCCL " + std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

bool is_silenced() {
  const std::string level = environment("GRADWIRE_LOG").value_or("warn");
  return level == "error" || level == "off";
}

/// At the end of the process, or when the shim is unloaded.
__attribute__((destructor)) void tell() {
  const Counters& counters = state().counters;
  unseen([&] {
    if (getpid() != kProcess || counters.empty() || !counters.speaks()) {
      return;
    }
    if (!is_silenced()) {
      std::fprintf(stderr, "gradwire: %s\n", counters.summary().c_str());
    }
    if (const auto file = environment("GRADWIRE_REPORT"); file) {
      const std::string name = *file + ".nccl";
      std::ofstream out(name);
      out << counters.report(library_name());
      out.close();
      if (!out) {
        std::fprintf(stderr, "gradwire: cannot write the report %s\n", name.c_str());
      }
    }
  });
}

}  // namespace

State& state() {
  static auto* const instance = new State;  // NOLINT(cppcoreguidelines-owning-memory): never destroyed
  return *instance;
}

const std::string& library_name() {
  static const auto* const name = new std::string(ask_library_name());  // NOLINT(cppcoreguidelines-owning-memory)
  return *name;
}

const shim::Settings& settings() {
  static const shim::Settings value = read_settings();
  return value;
}

}  // namespace gradwire::nccl_preload
