// Makes one training run: a new model from the seed, a session with one policy, and the measured results.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "gradwire/policy.hpp"
#include "gradwire/statistics.hpp"
#include "text.hpp"

namespace char_lm {

struct TrainingOptions {
  int steps = 240;   // micro-steps: one backward pass of each rank; progress is counted in them
  int batch = 8;     // windows per rank and step
  int context = 64;  // characters per window
  int width = 256;
  int heads = 4;
  int layers = 2;
  double learning_rate = 1e-3;
  int freeze_second_moment_at = 0;  // the step from which on Adam's second moment does not change; 0: never
  bool send_momentum = false;       // from that step on ranks reduce momentum instead of gradients
  int settled_at = 0;               // the step from which on bytes sent are counted as those of the policy
  double precondition = 0;          // phi of AdamW::scale(), by which gradients are scaled for encoding; 0: not at all
  bool iid = false;                 // every rank draws from the whole text, not from a part of its own
  std::uint64_t seed = 1;
  std::string link;            // "" or a link to emulate: "1Gbit/s,50us"
  bool advised_batch = false;  // accumulate as many micro-steps to each reduction as the session advises
  int evaluate_every = 0;      // micro-steps between two evaluations of the held-out part; 0: only at the end
  std::string save_gradients;  // "" or the file for rank 0's gradients of three steps
};

/// The results of one run. Losses are nats per character; bytes, times and ratios are means over the ranks and over the
/// micro-steps after a short warm-up.
struct RunResult {
  /// The state of the run at one evaluation. Times do not include evaluations.
  struct Point {
    int micro_steps = 0;
    int reductions = 0;
    double seconds = 0;          // since the model and the session were begun
    double exposed_seconds = 0;  // of these, in finish(); mean over the ranks
    double bytes_sent = 0;       // since the session was begun; mean over the ranks
    double held_out_loss = 0;
  };
  /// An advice on the batch, and the micro-step from which it was followed.
  struct Advised {
    int micro_step = 0;
    gradwire::BatchAdvice advice;
  };
  std::string policy;
  std::uint64_t seed = 0;
  double precondition = 0;   // as in TrainingOptions
  double train_loss = 0;     // mean over the ranks and the last tenth of the steps
  double held_out_loss = 0;  // over the whole held-out part
  double ratio = 1;
  double ratio_compressed = 1;  // of the calls with a lossy codec; 1 without any
  double bytes_sent_per_step = 0;
  double bytes_sent = 0;  // in the whole run, including the last synchronisation of local steps
  /// The bits sent for an element of the model, a step and a hop, headers included: 32 if all is f32 and uncompressed.
  double bits_per_element_and_hop = 0;           // from TrainingOptions::settled_at on
  double bits_per_element_and_hop_in_whole = 0;  // of bytes_sent: with warm-up and last synchronisation
  double ms_per_step = 0;
  double communication_ms = 0;  // all-reduce of one step without a backward pass: median of a few extra steps
  double exposed_comm_ms = 0;   // per step, spent in finish(): for communication that was not hidden, or a slower rank
  int measured_steps = 0;
  int reductions = 0;                           // of the whole run
  double seconds = 0;                           // of the whole run, from the making of the session to its last step
  std::vector<Point> curve;                     // the last one is the end of the run
  std::vector<Advised> advised;                 // with advised_batch
  std::vector<std::string> codecs;              // in use at the end, by group
  std::vector<gradwire::CodecSwitch> switches;  // of codec = "auto"
  std::uint64_t parameters = 0;
  double large_share = 0;  // of the parameters, in tensors of at least 64 KiB
  std::string transport;   // as the session names it; says so when a link is emulated
};

/// The progress of a run. `loss` is this rank's own, smoothed.
struct Progress {
  int step = 0;  // micro-steps done
  int steps = 0;
  double loss = 0;
  double ms_per_step = 0;
  double bytes_sent_per_step = 0;
  const gradwire::BatchAdvice* changed = nullptr;  // an advice that is followed from here on
};

/// Trains and evaluates. Collective over `communicator`; the result is the same on every rank. `progress` is called
/// after each step.
[[nodiscard]] RunResult train(const std::string& name, const gradwire::Policy& policy, const Text& text,
                              const TrainingOptions& options, MPI_Comm communicator,
                              const std::function<void(const Progress&)>& progress);

}  // namespace char_lm
