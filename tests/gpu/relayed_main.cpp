// gpu_relayed compares sessions over device memory whose bytes a host thread moves over MPI (gradwire/cuda.hpp) with
// sessions over host memory, byte for byte. Each rank is a process under mpirun. It is not part of tests/gpu/check,
// since it needs libraries. Exits 0, 1, or 77 without a GPU.
#include <mpi.h>

#include <chrono>
#include <cstdlib>
#include <exception>

#include "gradwire/cuda.hpp"
#include "gradwire/mpi.hpp"
#include "tests/gpu/session_trainer.hpp"

namespace gradwire::gpu {
namespace {

struct Place {
  int rank = 0;
  int world_size = 1;
};

Place place() {
  Place here;
  MPI_Comm_rank(MPI_COMM_WORLD, &here.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &here.world_size);
  return here;
}

/// Returns whether `holds` is true on all ranks; it is also a barrier.
bool everywhere(bool holds) {
  int mine = holds ? 1 : 0;
  MPI_Allreduce(MPI_IN_PLACE, &mine, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  return mine == 1;
}

Trainer trainer_of(cudaStream_t stream, const std::string& codec, const SessionOptions& options = {}) {
  return {place().rank, stream,
          cuda::make_session(mpi::make_transport(MPI_COMM_WORLD), stream, session_policy(codec), options)};
}

void compare_steps(Check& check, Trainer& trainer, const std::string& codec, const std::string& what) {
  const Results wanted = host_results(session_policy(codec), place().world_size);
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    trainer.load(step);
    trainer.enqueue();
    compare_step(check, trainer.results(), wanted, step, what);
  }
}

void check_bits(Check& check, cudaStream_t stream, const std::string& codec) {
  Trainer trainer = trainer_of(stream, codec);
  compare_steps(check, trainer, codec, codec);
  const std::string name = trainer.session().statistics().transport;
  check.that(name.find("pinned") != std::string::npos || name.find("from device memory") != std::string::npos,
             "the transport is named \"" + name + "\"");
  if (place().rank == 0) {
    std::printf("gpu_relayed: over %s\n", name.c_str());
  }
}

// Each step waits until all ranks have checked it.
void check_over_processes(Check& check, cudaStream_t stream, const std::string& codec) {
  Trainer trainer(place().rank, stream,
                  cuda::make_session(mpi::make_processes(MPI_COMM_WORLD), stream, session_policy(codec)));
  compare_steps(check, trainer, codec, codec + ", over processes");
}

// The device waits for the host's thread by a memory operation: an absent peer must end in an error.
void check_absent(Check& check, cudaStream_t stream) {
  SessionOptions options;
  options.timeout = std::chrono::seconds(3);
  Trainer trainer = trainer_of(stream, "int8", options);
  trainer.load(0);
  trainer.session().wait(trainer.enqueue());
  if (place().rank == 0) {
    std::this_thread::sleep_for(std::chrono::seconds(6));
    check.that(true, "rank 0 stayed away");
    return;  // this ends its session
  }
  std::string said = "nothing was thrown";
  try {
    trainer.load(1);
    trainer.session().wait(trainer.enqueue());
  } catch (const Error& error) {
    const bool expected = error.code() == ErrorCode::timeout || error.code() == ErrorCode::aborted;
    said = expected ? "" : std::string(to_string(error.code())) + ": " + error.what();
  }
  check.that(said.empty(), "without rank 0: " + said);
}

int run(Check& check) {
  if (place().rank != 0) {
    check.write_no_rows();
  }
  cuda(cudaSetDevice(0), "cudaSetDevice");
  const Stream own;
  const auto stream = static_cast<cudaStream_t>(own.get());
  bool through = true;
  for (const char* codec : {"int8", "int4", "topk(1%)+int8", "exact"}) {
    through = through && everywhere(check.part(std::string("relayed session, ") + codec,
                                               [&] { check_bits(check, stream, codec); }));
  }
  for (const char* codec : {"int4", "topk(1%)+int8"}) {
    through = through && everywhere(check.part(std::string("relayed session over processes, ") + codec,
                                               [&] { check_over_processes(check, stream, codec); }));
  }
  if (through) {
    check.part("a rank that stays away", [&] { check_absent(check, stream); });
  }
  return check.finish();
}

}  // namespace
}  // namespace gradwire::gpu

int main(int argc, char** argv) {
  using namespace gradwire::gpu;
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  Check check("gpu_relayed", argc, argv);
  int status = kFailed;
  if (const std::string missing = why_no_device(); !missing.empty()) {
    status = check.skip(missing);
  } else {
    try {
      status = run(check);
    } catch (const std::exception& error) {
      check.fail(error.what());
    }
  }
  std::fflush(nullptr);
  if (status == kFailed) {
    MPI_Abort(MPI_COMM_WORLD, kFailed);
  }
  MPI_Finalize();
  return status;
}
