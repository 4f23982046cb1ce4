// The bridge from a LibTorch model to a Session. Needs the component `torch`: target gradwire::torch.
//
//   gradwire::torch::Adapter sync(session, model);   // adds the parameters, broadcasts their values, installs hooks
//   ...
//   optimizer.zero_grad();
//   loss.backward();   // each gradient is handed over as soon as it is complete
//   sync.finish();     // every .grad() now holds the mean over the ranks
//   optimizer.step();
#pragma once

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gradwire/dtype.hpp"
#include "gradwire/error.hpp"
#include "gradwire/session.hpp"

namespace gradwire::torch {

/// The memory of a dense CPU tensor. `name` serves messages. Error(unsupported) for another device, layout or type.
[[nodiscard]] inline View view(const at::Tensor& tensor, const std::string& name) {
  if (!tensor.device().is_cpu() || tensor.layout() != at::kStrided || !tensor.is_non_overlapping_and_dense()) {
    throw Error(ErrorCode::unsupported,
                "tensor " + name + " is not a dense CPU tensor; move it with .cpu().contiguous()");
  }
  DType dtype = DType::f32;
  switch (tensor.scalar_type()) {
    case at::kFloat: dtype = DType::f32; break;
    case at::kHalf: dtype = DType::f16; break;
    case at::kBFloat16: dtype = DType::bf16; break;
    case at::kDouble: dtype = DType::f64; break;
    default:
      throw Error(ErrorCode::unsupported, "tensor " + name + " has element type " +
                                              std::string(c10::toString(tensor.scalar_type())) +
                                              "; gradwire knows Float, Half, BFloat16 and Double");
  }
  return {tensor.data_ptr(), static_cast<std::uint64_t>(tensor.numel()), dtype};
}

/// Hands the gradients of one model to one session. Create the model first, then the session, then the adapter, and
/// give the optimizer the model's own parameters. Not thread-safe beside the hooks, which run inside backward().
class Adapter {
 public:
  /// Adds every parameter that requires a gradient, in order of registration (keep that the order of the forward pass),
  /// with its values, so that policies may ask for local steps; optimizer state stays each rank's own then,
  /// gives each a zero-filled .grad() where it has none, sends rank `root`'s parameters and floating-point buffers to
  /// all ranks, and installs the hooks. Collective.
  Adapter(Session& session, const ::torch::nn::Module& model, int root = 0) : Adapter(session, model, {}, root) {}
  /// The scale of a parameter by its name (TensorOptions::scale), as AdamW::scale(name) has it; empty: none. Such a
  /// parameter is added without its values: policies may not ask for local steps of it.
  using Scales = std::function<std::span<const float>(const std::string& name)>;
  Adapter(Session& session, const ::torch::nn::Module& model, const Scales& scales, int root = 0) : session_(session) {
    ::torch::NoGradGuard no_grad;
    for (const auto& item : model.named_parameters()) {
      values_.push_back(torch::view(item.value(), item.key()));
      if (item.value().requires_grad()) {
        add(item.key(), item.value(), scales ? scales(item.key()) : std::span<const float>());
      }
    }
    for (const auto& item : model.named_buffers()) {
      if (item.value().is_floating_point()) {
        values_.push_back(torch::view(item.value(), item.key()));
      }
    }
    session_.broadcast(values_, root);
  }
  template <typename Contained>
  Adapter(Session& session, const ::torch::nn::ModuleHolder<Contained>& model, int root = 0)
      : Adapter(session, static_cast<const ::torch::nn::Module&>(*model), root) {}
  template <typename Contained>
  Adapter(Session& session, const ::torch::nn::ModuleHolder<Contained>& model, const Scales& scales, int root = 0)
      : Adapter(session, static_cast<const ::torch::nn::Module&>(*model), scales, root) {}

  /// Removes the hooks; gradients stay where they are.
  ~Adapter() = default;  // each entry takes its hook out of the model
  Adapter(const Adapter&) = delete;
  Adapter& operator=(const Adapter&) = delete;

  /// Called with the name of each parameter and its gradient, this rank's own, before it is handed over: it may change
  /// it in place, as AdamW::to_send(name, gradient) does. Gradients are f32 then. Between two steps.
  using BeforeReady = std::function<void(const std::string& name, std::span<float> gradient)>;
  void before_ready(BeforeReady call) { before_ready_ = std::move(call); }

  /// Where the model's parameters and floating-point buffers lie: with Optimizer::state() what Session::share() and
  /// restore() are to be given, and checkpoint() as ConstView. Valid as long as the model.
  [[nodiscard]] const std::vector<View>& values() const noexcept { return values_; }

  /// Ends the step: parameters that the backward pass did not reach count as zeros on this rank, then waits until every
  /// .grad() holds the reduced value. Where the outcome says `repeat`, set gradients to zero and do backward() again.
  StepOutcome finish() {
    for (const auto& entry : entries_) {
      if (entry->ready) {
        continue;
      }
      if (entry->touched) {
        hand_over(*entry);  // its gradient came under no_sync()
      } else if (before_ready_) {
        entry->parameter.mutable_grad() = entry->buffer.zero_();
        hand_over(*entry);
      } else {
        entry->parameter.mutable_grad() = entry->buffer;
        session_.ready_zero(entry->id);
      }
    }
    StepOutcome outcome = session_.finish();
    for (const auto& entry : entries_) {
      entry->ready = entry->touched = false;
    }
    return outcome;
  }

  /// Scope in which backward() only accumulates. Use it for all but the last backward() of a step.
  class NoSync {
   public:
    explicit NoSync(Adapter& adapter) : adapter_(adapter), session_scope_(adapter.session_) {
      adapter_.no_sync_ = true;
    }
    ~NoSync() { adapter_.no_sync_ = false; }
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    Adapter& adapter_;
    Session::NoSync session_scope_;
  };
  [[nodiscard]] NoSync no_sync() { return NoSync(*this); }

 private:
  struct Entry {
    std::string name;
    at::Tensor parameter;
    at::Tensor buffer;  // the gradient that was added to the session
    TensorId id{};
    std::shared_ptr<::torch::autograd::Node> accumulator;  // the parameter itself holds it only weakly
    std::uintptr_t hook = 0;
    bool touched = false;  // got a gradient since the last finish()
    bool ready = false;    // was handed to the session in this step

    Entry() = default;
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;
    ~Entry() {  // also when a constructor throws half way: a hook must not outlive what it refers to
      if (hook != 0) {
        accumulator->del_post_hook(hook);
      }
    }
  };

  // A tensor's own hook runs before the gradient is added to .grad(); a hook after AccumulateGrad runs when it is
  // there.
  class GradientComplete : public ::torch::autograd::FunctionPostHook {
   public:
    GradientComplete(Adapter& adapter, Entry& entry) : adapter_(adapter), entry_(entry) {}
    ::torch::autograd::variable_list operator()(const ::torch::autograd::variable_list& outputs,
                                                const ::torch::autograd::variable_list&) override {
      entry_.touched = true;
      if (!adapter_.no_sync_) {
        adapter_.hand_over(entry_);
      } else {
        adapter_.session_.ready(entry_.id);  // counts the micro-step
      }
      return outputs;
    }

   private:
    Adapter& adapter_;
    Entry& entry_;
  };

  void add(const std::string& name, const at::Tensor& parameter, std::span<const float> scale) {
    auto entry = std::make_unique<Entry>();
    entry->name = name;
    entry->parameter = parameter;
    if (!parameter.grad().defined()) {
      entry->parameter.mutable_grad() = at::zeros_like(parameter);
    }
    entry->buffer = parameter.grad();
    const View gradient = torch::view(entry->buffer, name);
    const auto ndim = static_cast<std::uint32_t>(parameter.dim());
    entry->id = scale.empty() ? session_.add(name, gradient, torch::view(entry->parameter, name), {}, ndim)
                              : session_.add(name, gradient, {.ndim = ndim, .scale = scale});
    entry->accumulator = ::torch::autograd::impl::grad_accumulator(parameter);
    entry->hook = entry->accumulator->add_post_hook(std::make_unique<GradientComplete>(*this, *entry));
    entries_.push_back(std::move(entry));
  }

  // A gradient may lie elsewhere than the one that was added, after zero_grad(set_to_none) for example.
  void hand_over(Entry& entry) {
    ::torch::NoGradGuard no_grad;
    const at::Tensor grad = entry.parameter.grad();
    if (grad.layout() != at::kStrided) {
      throw Error(ErrorCode::unsupported,
                  "gradient of " + entry.name + " is sparse; build its module without sparse gradients");
    }
    if (grad.strides() != entry.buffer.strides()) {
      entry.buffer.copy_(grad);
      entry.parameter.mutable_grad() = entry.buffer;
    }
    const View now = torch::view(entry.parameter.grad(), entry.name);
    if (before_ready_) {
      if (now.dtype != DType::f32) {
        throw Error(ErrorCode::unsupported, "gradient of " + entry.name + " is not Float, which before_ready() needs");
      }
      before_ready_(entry.name, {static_cast<float*>(now.data), static_cast<std::size_t>(now.count)});
    }
    if (now.data == entry.buffer.data_ptr()) {
      session_.ready(entry.id);
    } else {
      session_.ready(entry.id, now);
    }
    entry.ready = true;
  }

  Session& session_;
  std::vector<View> values_;
  std::vector<std::unique_ptr<Entry>> entries_;
  BeforeReady before_ready_;
  bool no_sync_ = false;
};

}  // namespace gradwire::torch
