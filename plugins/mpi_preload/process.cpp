#include "plugins/mpi_preload/process.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string_view>

#include "base/mutex.hpp"

namespace gradwire::mpi_preload {

constinit std::atomic<CallHandling> g_standing{CallHandling::not_begun};

namespace {

// "Open MPI v4.1.4, package: ..." or "MPICH Version:      4.0.2\nMPICH Release ...", short.
std::string short_version(std::string_view text, std::string_view family) {
  const std::size_t digit = text.find_first_of("0123456789");
  if (digit == std::string_view::npos) {
    return std::string(text.substr(0, text.find('\n')));
  }
  return std::string(family) + " " + std::string(text.substr(digit, text.find_first_of(", \t\n", digit) - digit));
}

int own_error_code() {
  int error_class = MPI_ERR_OTHER;
  int code = MPI_ERR_OTHER;
  PMPI_Add_error_class(&error_class);
  PMPI_Add_error_code(error_class, &code);
  return code;
}

}  // namespace

Process::Process() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING + 8192> text{};  // large enough for any MPI library
  int length = 0;
  PMPI_Get_library_version(text.data(), &length);
#ifdef OPEN_MPI
  const std::string_view family = "Open MPI";
#else
  const std::string_view family = "MPICH";
#endif
  const std::string_view version(text.data());
  understood = version.find(family) != std::string_view::npos;
  implementation = short_version(version, family);
  if (!understood) {
    foreign = "this drop-in is for " + std::string(family) + ", the job runs with " +
              std::string(version.substr(0, version.find_first_of(",\n"))) +
              "; start it with the mpirun of its own MPI";
#ifdef OPEN_MPI
    wide_handles = false;
#else
    wide_handles = version.find("Open MPI") != std::string_view::npos;
#endif
    if (!wide_handles) {
      say("every call is passed through: " + foreign);
    }
  }
}

void stop_if_foreign() noexcept {
  if (process().wide_handles) {
    say(process().foreign);
    std::_Exit(EXIT_FAILURE);
  }
}

Process& process() {
  static auto* const instance = new Process;
  return *instance;
}

bool may_act() noexcept {
  int initialized = 0;
  int finalized = 0;
  PMPI_Initialized(&initialized);
  PMPI_Finalized(&finalized);
  return initialized != 0 && finalized == 0 && process().understood && !process().finished;
}

void say(const std::string& line) noexcept { std::fputs(("gradwire: " + line + "\n").c_str(), stderr); }

void tell(const std::string& line) noexcept {
  int rank = -1;
  PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  std::array<char, 16> clock{};
  std::strftime(clock.data(), clock.size(), "%H:%M:%S", localtime_r(&now, &local));
  std::fprintf(stderr, "gradwire %s rank %d: %s\n", clock.data(), rank, line.c_str());
}

void warn_once(const std::string& line) {
  {
    const MutexLock lock(process().mutex);
    if (process().configuration.quiet || !process().warned.insert(line).second) {
      return;
    }
  }
  tell(line);
}

namespace {

// Logs a failure once, since all calls after the first failure fail for the same reason.
void tell_failure_once(const std::string& message) {
  static Mutex mutex;
  static auto& told = *new std::set<std::string>;  // never destroyed, like Process
  {
    const MutexLock lock(mutex);
    if (!told.insert(message).second) {
      return;
    }
  }
  tell(message);
}

}  // namespace

int announce(const std::string& message) {
  process().failed = true;
  tell_failure_once(message);
  // The process's mutex is not held here: on_delete takes it under a lock of the library, which these calls may take.
  static const int code = own_error_code();
  std::string text = "gradwire: " + message;
  text.resize(std::min<std::size_t>(text.size(), MPI_MAX_ERROR_STRING - 1));
  PMPI_Add_error_string(code, text.c_str());
  return code;
}

std::string name_of_buffer(const void* buffer) {
  Process& self = process();
  if (!self.any_names) {
    return {};
  }
  const MutexLock lock(self.mutex);
  return self.names.of(buffer);
}

}  // namespace gradwire::mpi_preload

extern "C" __attribute__((visibility("default"))) void gradwire_name(const void* buffer, const char* name) {
  using gradwire::mpi_preload::process;
  try {
    const gradwire::MutexLock lock(process().mutex);
    process().names.set(buffer, name == nullptr ? "" : name);
    process().any_names = !process().names.empty();
  } catch (...) {  // NOLINT(bugprone-empty-catch): the buffer then has no name
  }
}
