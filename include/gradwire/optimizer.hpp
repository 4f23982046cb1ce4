// Optimizers for compressed gradients, over memory that the caller owns. Steps that a session skipped or repeats change
// nothing, and a loss scale is divided out. AdamW can freeze its second moment, and gives the scale for preconditioned
// encoding. Every rank has one; equal results lead all ranks to equal parameters.
//
//   gradwire::AdamW optimizer({.learning_rate = 1e-3});
//   optimizer.add("w", w, gradient);                                               // spans of float
//   auto id = session.add("w", view(gradient.data(), gradient.size()), {.scale = optimizer.scale("w")});
//   ...
//   session.ready(id);
//   optimizer.step(session.finish());
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gradwire/session.hpp"

namespace gradwire {

/// The common base of AdamW and Sgd. Not thread-safe. Everything that throws is Error(invalid_argument) unless said
/// otherwise.
class Optimizer {
 public:
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// Adds a parameter and its gradient: f32, of one size, in memory that stays valid. `gradient` may be empty until
  /// set_gradient() gives one. Returns the parameter's index. To be called before the first step.
  std::size_t add(std::string_view name, std::span<float> parameter, std::span<const float> gradient = {});
  /// Sets where the gradient lies from now on.
  void set_gradient(std::size_t index, std::span<const float> gradient);
  void set_learning_rate(double rate) { learning_rate_ = rate; }
  /// Sets the factor by which gradients are too large: the one given to Session::set_loss_scale.
  void set_loss_scale(double scale);
  [[nodiscard]] double loss_scale() const noexcept { return loss_scale_; }

  /// Updates the parameters, after Session::finish(). Returns false, and changes nothing, where the step was skipped or
  /// is made again, or where NaN or Inf is in it.
  bool step(const StepOutcome& outcome);
  /// Number of steps that changed the parameters.
  [[nodiscard]] std::uint64_t steps() const noexcept { return steps_; }

  /// Writes the state, without parameters and learning rate, to the stream that Session::save() writes to, or another
  /// one. `packed` packs the values by libzstd, bit by bit the same, as Policy::save_packed does for a session's,
  /// and is refused like that in a build without libzstd. load() reads both, and comes after every add().
  /// Error(corrupt) for a truncated or damaged state, Error(mismatch) for the state of another model or optimizer, or
  /// where its length is damaged; nothing has changed then.
  void save(std::ostream& stream, bool packed = false) const;
  void load(std::istream& stream);
  /// Views of the state that save() writes, in host memory of this object: for Session::share() and restore(), and as
  /// ConstView for checkpoint(), beside the parameters. The learning rate is not in it: set it by Session::step(),
  /// which a process that joins is told. To be called after every add() and scale(). Some of the numbers are no
  /// gradients, so they may only be copied.
  [[nodiscard]] std::vector<View> state();

 private:
  struct Loaded;
  [[nodiscard]] std::uint64_t body_bytes() const;
  [[nodiscard]] Loaded parse(std::span<const std::byte> body) const;

 protected:
  /// Takes memory from the process's page pool, as the rest of gradwire does.
  struct PoolAllocator {
    using value_type = float;
    template <typename>
    struct rebind {
      using other = PoolAllocator;
    };
    [[nodiscard]] float* allocate(std::size_t count);
    void deallocate(float* memory, std::size_t count) noexcept;
    friend bool operator==(const PoolAllocator& /*a*/, const PoolAllocator& /*b*/) noexcept { return true; }
  };
  using Floats = std::vector<float, PoolAllocator>;
  struct Tensor {
    std::string name;
    std::span<float> parameter;
    std::span<const float> gradient;
    std::vector<Floats> moments;
    Floats scale;               // empty unless scale() was called
    bool made_to_send = false;  // to_send() was called since the last step
  };
  Optimizer(std::string_view kind, double learning_rate, std::size_t moments, std::vector<double> numbers = {})
      : numbers_(std::move(numbers)), kind_(kind), learning_rate_(learning_rate), moments_(moments) {}
  ~Optimizer() = default;

  static void check_gradient(std::string_view name, std::span<const float> parameter, std::span<const float> gradient);
  [[nodiscard]] std::size_t index_of(std::string_view name) const;
  void require_index(std::size_t index) const;
  [[nodiscard]] double learning_rate() const noexcept { return learning_rate_; }

  /// Whether every gradient must go through to_send() before it is reduced.
  [[nodiscard]] virtual bool makes_what_is_sent() const { return false; }
  virtual void begin_step() = 0;
  virtual void update(Tensor& tensor, float gradient_factor) = 0;
  /// Called after update() and load().
  virtual void renew_scale(Tensor& tensor) const = 0;

  std::vector<Tensor> tensors_;
  std::vector<double> numbers_;  // saved beside the moments

 private:
  std::string_view kind_;
  double learning_rate_;
  std::size_t moments_;  // how many each tensor has
  double loss_scale_ = 1;
  std::uint64_t steps_ = 0;
};

struct AdamWOptions {
  double learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 1e-2;
  double phi = 0.02;  // of scale(): the share of the rms that every element has at least
};

/// AdamW (Loshchilov and Hutter, 2019): m and v are means of gradients and their squares, with bias correction;
/// parameter = (1 - rate x weight_decay) parameter - rate m / (sqrt(v) + epsilon).
class AdamW final : public Optimizer {
 public:
  explicit AdamW(const AdamWOptions& options = {});

  /// The scale for TensorOptions::scale: sqrt(v) + phi x rms(sqrt(v)) over the tensor, where v is the second moment
  /// before the coming step. It is zero, and so without effect, until the first step. It stays at its address, and
  /// changes in step() only.
  [[nodiscard]] std::span<const float> scale(std::size_t index);
  [[nodiscard]] std::span<const float> scale(std::string_view name) { return scale(index_of(name)); }

  /// The guard for codecs that deliver gradients in rare, large portions (topk, int2, sign), whose squares would
  /// inflate v and shrink every later step: from now on v stays as it is (1-bit Adam: Tang et al., 2021). Elements
  /// whose v is 0 have had no gradient yet, and would take infinite steps: they do not move.
  void freeze_second_moment() { numbers_[kFrozen] = std::max(numbers_[kFrozen], kGradients); }
  [[nodiscard]] bool frozen() const noexcept { return numbers_[kFrozen] != 0; }

  /// A stronger guard: v is frozen, and from now on ranks reduce beta1 x m + (1 - beta1) x gradient in place of their
  /// gradients; the result is the next m (1-bit Adam). The mean over ranks is the same as without it, but a codec that
  /// drops most values then sees a sum of many gradients and not the noise of one. To be called between two steps, on
  /// all ranks alike. It needs means over ranks under sync = "step", not Reduction::sum. Where earlier steps had error
  /// feedback, call Session::flush() before the last of them: residuals of gradients are no momentum.
  void send_momentum() { numbers_[kFrozen] = kMomentum; }
  [[nodiscard]] bool sends_momentum() const noexcept { return numbers_[kFrozen] == kMomentum; }
  /// Turns a gradient of this rank, in place, into what is to be sent. Call it with each gradient, once a step, when it
  /// is complete and before it is handed over. The gradient is f32, has as many elements as the parameter and keeps the
  /// loss scale; where there is none give zeros (not ready_zero()). Before send_momentum() it changes nothing; behind
  /// it step() is Error(invalid_argument) for a gradient that was not given to it.
  void to_send(std::size_t index, std::span<float> gradient);
  void to_send(std::string_view name, std::span<float> gradient) { to_send(index_of(name), gradient); }

 private:
  [[nodiscard]] bool makes_what_is_sent() const override { return sends_momentum(); }
  void begin_step() override;
  void update(Tensor& tensor, float gradient_factor) override;
  void renew_scale(Tensor& tensor) const override;

  enum : std::size_t { kBeta1Power, kBeta2Power, kFrozen };  // indices into numbers_
  static constexpr double kGradients = 1, kMomentum = 2;     // values of kFrozen: what is sent while v is frozen
  AdamWOptions options_;
};

struct SgdOptions {
  double learning_rate = 1e-2;
  double momentum = 0.9;
  double weight_decay = 0;
};

/// m = momentum x m + gradient + weight_decay x parameter; parameter -= rate x m.
class Sgd final : public Optimizer {
 public:
  explicit Sgd(const SgdOptions& options = {}) : Optimizer("sgd", options.learning_rate, 1), options_(options) {}

 private:
  void begin_step() override {}
  void update(Tensor& tensor, float gradient_factor) override;
  void renew_scale(Tensor& /*tensor*/) const override {}

  SgdOptions options_;
};

}  // namespace gradwire
