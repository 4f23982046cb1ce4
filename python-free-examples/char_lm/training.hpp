// One training run: a fresh model from the seed, a session with one policy, and what came out of it, measured.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "gradwire/policy.hpp"
#include "text.hpp"

namespace char_lm {

struct TrainingOptions {
  int steps = 240;
  int batch = 8;     // windows per rank and step
  int context = 64;  // characters per window
  int width = 256;
  int heads = 4;
  int layers = 2;
  double learning_rate = 1e-3;
  int freeze_second_moment_at = 0;  // the step from which on Adam's second moment stays as it is; 0: never
  std::uint64_t seed = 1;
  std::string link;            // "" or a link to emulate: "1Gbit/s,50us"
  std::string save_gradients;  // "" or the file that rank 0's gradients go to, at three steps
};

/// What one run measured. Losses are nats per character; bytes, times and ratios are means over the ranks and over the
/// steps after a short warm-up.
struct RunResult {
  std::string policy;
  std::uint64_t seed = 0;
  double train_loss = 0;     // mean over the ranks and the last tenth of the steps
  double held_out_loss = 0;  // over the whole held-out part
  double ratio = 1;
  double ratio_compressed = 1;  // of the calls with a lossy codec; 1 without any
  double bytes_sent_per_step = 0;
  double ms_per_step = 0;
  double communication_ms = 0;  // all-reduce of one step with nothing beside it: median of a few extra steps
  double exposed_comm_ms = 0;   // of a step, spent in finish(): for communication that was not hidden, or a slower rank
  int measured_steps = 0;
  std::uint64_t parameters = 0;
  double large_share = 0;  // of the parameters, in tensors of at least 64 KiB
  std::string transport;   // as the session names it; says so when a link is emulated
};

/// Where a run stands; `loss` is this rank's own, smoothed.
struct Progress {
  int step = 0;  // steps done
  int steps = 0;
  double loss = 0;
  double ms_per_step = 0;
  double bytes_sent_per_step = 0;
};

/// Trains and evaluates. Collective over `communicator`; the result is the same on every rank. `progress` is called
/// after each step.
[[nodiscard]] RunResult train(const std::string& name, const gradwire::Policy& policy, const Text& text,
                              const TrainingOptions& options, MPI_Comm communicator,
                              const std::function<void(const Progress&)>& progress);

}  // namespace char_lm
