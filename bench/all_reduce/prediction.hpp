// Predicts a row's time by the cost model, from codecs and latency measured here and the rate of the link.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "bench/all_reduce/contender.hpp"
#include "bench/all_reduce/options.hpp"
#include "exchange/model/cost_model.hpp"

namespace gradwire::bench {

class Predictor {
 public:
  /// Measures the latency of messages. `bytes_per_second` is the rate of a link in one direction. Collective over the
  /// world.
  Predictor(const Options& options, double bytes_per_second);

  /// Returns the same cost on every rank. Collective over the world: measures codecs that it has not measured before.
  [[nodiscard]] exchange::Cost cost(const ContenderRecipe& recipe, double elements);
  /// Returns the model's inputs besides codecs, as a text.
  [[nodiscard]] std::string describe() const;

 private:
  [[nodiscard]] const exchange::CodecCost& cost_of(const std::string& codec, bool feedback);

  exchange::Cluster cluster_;
  double chunk_bytes_;
  std::map<std::pair<std::string, bool>, exchange::CodecCost> costs_;
};

}  // namespace gradwire::bench
