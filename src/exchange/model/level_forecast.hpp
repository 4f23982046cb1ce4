// Predicts how long the reduction of a bucket takes at each level: the cost model, fitted to measurements of this link
// and these codecs.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "exchange/model/cost_model.hpp"
#include "gradwire/reduction.hpp"

namespace gradwire::exchange {

/// One way to reduce: algorithm and codecs, as the model sees them.
struct Way {
  bool native = false;  // true: the transport's own all-reduce; false: frames
  Algorithm algorithm = Algorithm::two_shot;
  CodecCost first = {};
  CodecCost second = {};
  CodecCost intra = {};  // for hierarchical only
};

/// A forecast is overhead + factor x the model's seconds without latency.
struct Fit {
  double overhead_seconds = 0;
  double factor = 1;
};

[[nodiscard]] Cost way_cost(const Cluster& cluster, const Way& way, double elements,
                            double chunk_bytes = kDefaultChunkBytes);

/// The model's seconds without the latency of messages, which belongs to the overhead.
[[nodiscard]] double model_seconds(const Cluster& cluster, const Way& way, double elements);

/// One reduction that was timed.
struct Timing {
  double elements = 0;
  double seconds = 0;
};
/// Fits through a small and a large reduction. Where both took about the same time, the factor is as small as allowed,
/// but elements do not cost less than the link's rate allows: a burst that an idle link lets through says nothing about
/// later bytes. Where the large one was much quicker, or there is only one, the overhead is the model's latency, or the
/// large one's time if that is less.
[[nodiscard]] Fit fit(const Cluster& cluster, const Way& way, std::span<const Timing> timings);

class LevelForecast {
 public:
  LevelForecast(Way way, Fit fit) : way_(way), fit_(fit) {}
  [[nodiscard]] double seconds(const Cluster& cluster, double elements) const {
    return fit_.overhead_seconds + fit_.factor * model_seconds(cluster, way_, elements);
  }
  /// Corrects the fit after a reduction took `ratio` times its forecast: by half of that (its square root), or
  /// `wholly`. The fit never goes far from the model.
  void correct(double ratio, bool wholly = false);
  [[nodiscard]] const Way& way() const noexcept { return way_; }
  [[nodiscard]] const Fit& fitted() const noexcept { return fit_; }

 private:
  Way way_;
  Fit fit_;
};

}  // namespace gradwire::exchange
