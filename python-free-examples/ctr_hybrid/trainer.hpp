// Trains one model on several ranks over emulated links, in three ways:
//   synchronous   the gradients of the table and of the dense layers are all-reduced whole, every step
//   hybrid        gradwire::Table exchanges the table's rows, within a bound on their age; dense layers are all-reduced
//                 every step
//   asynchronous  gradwire::Table exchanges both without a bound: no rank ever waits for another rank's step
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data.hpp"
#include "gradwire/emulation.hpp"
#include "gradwire/policy.hpp"
#include "gradwire/table.hpp"
#include "model.hpp"

namespace ctr_hybrid {

/// The embedding table's name in policies.
inline constexpr const char* kTableName = "embeddings";

/// Returns a policy that sends rows of the table by `codec`, at most `staleness` steps old, and dense layers exactly,
/// every step.
[[nodiscard]] gradwire::Policy hybrid_policy(std::uint64_t staleness, const std::string& codec);

struct TrainerOptions {
  std::uint32_t width = 16;                             // of an embedding
  std::int64_t hidden = 64;                             // of the first dense layer
  double learning_rate = 0.05;                          // of Adagrad, for everything
  gradwire::Policy policy = hybrid_policy(4, "exact");  // hybrid: of the table and of dense layers
  std::uint64_t seed = 1;
  std::string link;  // emulated link of each rank, "1Gbit/s,50us", for all traffic; empty: the real one
};

/// Returns the options of hybrid training's table, some of which the policy sets. Throws gradwire::Error if the policy
/// has no rule for it.
[[nodiscard]] gradwire::TableOptions hybrid_table(const Data& data, const TrainerOptions& options);

/// The bytes that this rank sent, and upper bounds of the ages of the rows that it read.
struct TrainerStatistics {
  /// Ages of the rows of a table.
  struct Ages {
    std::uint64_t maximum = 0;  // clocks
    double clocks = 0;          // summed over reads of rows
    double reads = 0;
  };
  std::uint64_t bytes_sent = 0;
  Ages rows, dense;  // of the embedding table; of dense layers, if a table holds them
};

class Trainer {
 public:
  Trainer() = default;
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;
  virtual ~Trainer() = default;

  /// Makes one step on this rank's `batch`; `next` is the batch after it.
  virtual void step(const Batch& batch, const Batch& next) = 0;
  /// Returns the logits by the model with all ranks' updates so far. Collective.
  virtual std::vector<float> predict(const Batch& batch) = 0;
  [[nodiscard]] virtual TrainerStatistics statistics() const = 0;
};

/// Collective. `mode` is one of the above; throws std::invalid_argument for another one.
[[nodiscard]] std::unique_ptr<Trainer> make_trainer(const std::string& mode, const Data& data,
                                                    const TrainerOptions& options);

}  // namespace ctr_hybrid
