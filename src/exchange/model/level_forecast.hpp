// How long the reduction of a bucket takes at each level: the cost model, fitted to what was measured on this link and
// with these codecs.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "exchange/model/cost_model.hpp"
#include "gradwire/reduction.hpp"

namespace gradwire::exchange {

/// A way to reduce, as the model sees it.
struct Way {
  bool native = false;  // the transport's own all-reduce; else frames
  Algorithm algorithm = Algorithm::two_shot;
  CodecCost first = {};
  CodecCost second = {};
  CodecCost intra = {};  // of hierarchical only
};

/// overhead + factor x the model's seconds without latency.
struct Fit {
  double overhead_seconds = 0;
  double factor = 1;
};

[[nodiscard]] Cost way_cost(const Cluster& cluster, const Way& way, double elements,
                            double chunk_bytes = kDefaultChunkBytes);

/// Without the latency of messages, which belongs to the overhead.
[[nodiscard]] double model_seconds(const Cluster& cluster, const Way& way, double elements);

/// One reduction that was timed.
struct Timing {
  double elements = 0;
  double seconds = 0;
};
/// Through a small and a large reduction. Where both took about as long, elements cost as little as may be, but not
/// less than the link's rate allows: what an idle link lets through at once says nothing of what follows. Where the
/// large one was much quicker, or there is only one, the overhead is the model's latency, or the large one's time if
/// less.
[[nodiscard]] Fit fit(const Cluster& cluster, const Way& way, std::span<const Timing> timings);

class LevelForecast {
 public:
  LevelForecast(Way way, Fit fit) : way_(way), fit_(fit) {}
  [[nodiscard]] double seconds(const Cluster& cluster, double elements) const {
    return fit_.overhead_seconds + fit_.factor * model_seconds(cluster, way_, elements);
  }
  /// What took `ratio` times its forecast: half of the way there, or wholly; never far from the model.
  void correct(double ratio, bool wholly = false);
  [[nodiscard]] const Way& way() const noexcept { return way_; }
  [[nodiscard]] const Fit& fitted() const noexcept { return fit_; }

 private:
  Way way_;
  Fit fit_;
};

}  // namespace gradwire::exchange
