#include "plugins/mpi_preload/recording.hpp"

#include <exception>
#include <memory>
#include <string>

#include "base/environment.hpp"
#include "base/record_target.hpp"
#include "base/start_directory.hpp"
#include "drop_in/gradient_recording.hpp"
#include "plugins/mpi_preload/describe.hpp"
#include "plugins/mpi_preload/device_memory.hpp"
#include "plugins/mpi_preload/process.hpp"

namespace gradwire::mpi_preload {

constinit std::atomic<bool> g_records = false;

namespace {

std::unique_ptr<drop_in::GradientRecording>& recording() {
  static auto* const instance = new std::unique_ptr<drop_in::GradientRecording>;  // MPI_Finalize may come at exit
  return *instance;
}

}  // namespace

void begin_recording() noexcept {
  try {
    const auto given = environment("GRADWIRE_RECORD_GRADIENTS");
    int rank = -1;
    int size = 0;
    if (!given || !may_act() || recording() || process().configuration.mode == drop_in::Mode::disabled ||
        PMPI_Comm_rank(MPI_COMM_WORLD, &rank) != MPI_SUCCESS || rank != 0 ||
        PMPI_Comm_size(MPI_COMM_WORLD, &size) != MPI_SUCCESS) {
      return;
    }
    RecordTarget target = RecordTarget::parse(*given);
    target.directory = from_start_directory(target.directory);
    recording() = std::make_unique<drop_in::GradientRecording>(target, rank, size);
    g_records = true;
  } catch (const std::exception& error) {
    say(error.what());  // the job goes on
  }
}

void record_call(choice::Function function, const void* send, const void* receive, std::int64_t count,
                 MPI_Datatype type, MPI_Op op) noexcept {
  try {
    const auto dtype = dtype_of(type);
    if (!dtype || !reduction_of(op) || count <= 0 ||
        static_cast<std::uint64_t>(count) * element_bytes(*dtype) < process().configuration.planner.floor()) {
      recording()->other_call();
      return;
    }
    const void* const from = send == MPI_IN_PLACE ? receive : send;
    if (from == nullptr || is_device_memory(from)) {
      return;
    }
    if (!recording()->call(function, {from, static_cast<std::uint64_t>(count), *dtype}, name_of_buffer(from))) {
      g_records = false;
    }
  } catch (...) {  // NOLINT(bugprone-empty-catch): there is no memory for a name
  }
}

void end_recording() noexcept {
  g_records = false;
  if (!recording()) {
    return;
  }
  const std::string line = recording()->end();
  if (!line.empty()) {
    say(line);
  }
}

}  // namespace gradwire::mpi_preload
