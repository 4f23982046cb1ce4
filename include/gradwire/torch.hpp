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
#include <torch/nn/functional/instancenorm.h>  // which modules/instancenorm.h does not include
#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/instancenorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "gradwire/dtype.hpp"
#include "gradwire/error.hpp"
#include "gradwire/session.hpp"

namespace gradwire::torch {

/// The memory of a dense CPU tensor. Messages use `name`. Error(unsupported) for another device, layout or type.
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
/// The model must outlive the adapter, and its parameters must stay the same objects: where one was added, unfrozen or
/// replaced since, finish() is Error(invalid_argument) that names it; make session and adapter after such a change.
class Adapter {
 public:
  /// Adds every parameter that requires a gradient, in order of registration (keep that the order of the forward pass),
  /// with its values, so that policies may ask for local steps (optimizer state stays each rank's own then). Gives each
  /// a zero-filled .grad() where it has none, sends rank `root`'s parameters and floating-point buffers to all ranks,
  /// and installs the hooks. Collective. A parameter that is registered under several names (tied weights) is added
  /// once, under the first of them. A strided buffer that is not dense is sent as a copy; other buffers that gradwire
  /// cannot read are not sent (skipped_buffers()).
  Adapter(Session& session, const ::torch::nn::Module& model, int root = 0) : Adapter(session, model, {}, root) {}
  /// Returns the scale of the parameter of that name (TensorOptions::scale), such as AdamW::scale(name); empty: no
  /// scale. A parameter with a scale is added without its values, so policies may not ask for local steps of it.
  using Scales = std::function<std::span<const float>(const std::string& name)>;
  Adapter(Session& session, const ::torch::nn::Module& model, const Scales& scales, int root = 0)
      : session_(session), model_(model) {
    ::torch::NoGradGuard no_grad;
    for (const auto& item : model.named_parameters()) {
      if (!first_names_.emplace(item.value().unsafeGetTensorImpl(), item.key()).second) {  // tied
        if (const auto found = by_parameter_.find(item.value().unsafeGetTensorImpl()); found != by_parameter_.end()) {
          ++found->second->registered;
        }
        continue;
      }
      values_.push_back(torch::view(item.value(), item.key()));
      if (item.value().requires_grad()) {
        add(item.key(), item.value(), scales ? scales(item.key()) : std::span<const float>());
      }
    }
    std::vector<std::pair<at::Tensor, at::Tensor>> copies = add_buffers();
    std::vector<View> sent = values_;
    for (const auto& [buffer, copy] : copies) {
      sent.push_back(torch::view(copy, "buffer"));
    }
    session_.broadcast(sent, root);
    for (auto& [buffer, copy] : copies) {
      buffer.copy_(copy);
    }
    remember_members(model);
    layers_ = model.modules(/*include_self=*/false);
    for (const auto& layer : layers_) {
      remember_members(*layer);
    }
    for (const auto& entry : entries_) {
      entry->had_owners =
          has_owners(*entry) && !std::any_of(members_.begin(), members_.end(), [&](const Member& member) {
            return member.registered == entry->parameter.unsafeGetTensorImpl();
          });
    }
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

  /// A function that is called with the name of each parameter and this rank's gradient before it is handed over. It
  /// may change the gradient in place, as AdamW::to_send(name, gradient) does. Gradients must be f32 then. Set it
  /// between two steps.
  using BeforeReady = std::function<void(const std::string& name, std::span<float> gradient)>;
  void before_ready(BeforeReady call) { before_ready_ = std::move(call); }

  /// Views of the model's parameters and dense floating-point buffers: give them, with Optimizer::state(), to
  /// Session::share() and restore(), and as ConstView to checkpoint(). Valid as long as the model.
  [[nodiscard]] const std::vector<View>& values() const noexcept { return values_; }
  /// Names of the floating-point buffers that were not sent: sparse ones, those of other devices or of types that
  /// gradwire does not know, and those whose elements share memory in other ways than expand() makes.
  [[nodiscard]] const std::vector<std::string>& skipped_buffers() const noexcept { return skipped_buffers_; }

  /// Ends the step: parameters that the backward pass did not reach count as zeros on this rank. Waits until every
  /// .grad() holds the reduced value. Where the outcome says `repeat`, set gradients to zero and do backward() again.
  StepOutcome finish() {
    check_model();
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
    at::Tensor buffer;           // the gradient that was added to the session
    const void* data = nullptr;  // the parameter's values, which were added beside it
    TensorId id{};
    std::shared_ptr<::torch::autograd::Node> accumulator;  // the parameter itself holds it only weakly
    std::uintptr_t hook = 0;
    std::size_t registered = 1;  // number of its names in the model
    bool touched = false;        // got a gradient since the last finish()
    bool ready = false;          // was handed to the session in this step
    bool had_owners = false;     // has_owners() at the start, where no known layer has it as a member

    Entry() = default;
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;
    ~Entry() {  // also runs when a constructor throws half way: a hook must not outlive its adapter
      if (hook != 0) {
        accumulator->del_post_hook(hook);
      }
    }
  };

  // This hook runs after AccumulateGrad, when the gradient is in .grad(); a tensor's own hook would run before that.
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

  // A member of a LibTorch layer that holds a parameter. The layer's forward() reads the member, and an assignment to
  // it does not reach the list of parameters that Module::named_parameters() returns.
  struct Member {
    const at::Tensor* tensor;
    const at::TensorImpl* registered;
  };

  // Returns pairs of a buffer and the copy of it that is to be sent and copied back.
  [[nodiscard]] std::vector<std::pair<at::Tensor, at::Tensor>> add_buffers() {
    std::vector<std::pair<at::Tensor, at::Tensor>> copies;
    std::unordered_map<const at::TensorImpl*, bool> seen;
    for (const auto& item : model_.named_buffers()) {
      const at::Tensor& buffer = item.value();
      if (!buffer.defined() || !buffer.is_floating_point() ||
          !seen.emplace(buffer.unsafeGetTensorImpl(), true).second) {
        continue;
      }
      if (!buffer.device().is_cpu() || buffer.layout() != at::kStrided || !knows(buffer.scalar_type())) {
        skipped_buffers_.push_back(item.key());
      } else if (buffer.is_non_overlapping_and_dense()) {
        values_.push_back(torch::view(buffer, "buffer " + item.key()));
      } else if (at::Tensor once = without_repetitions(buffer); has_gaps_only(once)) {
        at::Tensor copy = once.contiguous();
        copies.emplace_back(std::move(once), std::move(copy));
      } else {
        skipped_buffers_.push_back(item.key());
      }
    }
    return copies;
  }

  [[nodiscard]] static bool knows(at::ScalarType type) {
    return type == at::kFloat || type == at::kHalf || type == at::kBFloat16 || type == at::kDouble;
  }

  // Returns the buffer without the repetitions that expand() made: each element once.
  [[nodiscard]] static at::Tensor without_repetitions(at::Tensor buffer) {
    for (std::int64_t i = 0; i < buffer.dim(); ++i) {
      if (buffer.stride(i) == 0 && buffer.size(i) > 1) {
        buffer = buffer.narrow(i, 0, 1);
      }
    }
    return buffer;
  }

  // Whether no two elements share memory, as far as strides show: each stride is beyond the reach of all smaller ones.
  [[nodiscard]] static bool has_gaps_only(const at::Tensor& buffer) {
    std::vector<std::pair<std::int64_t, std::int64_t>> dimensions;
    for (std::int64_t i = 0; i < buffer.dim(); ++i) {
      if (buffer.size(i) > 1) {
        dimensions.emplace_back(buffer.stride(i), buffer.size(i));
      }
    }
    std::sort(dimensions.begin(), dimensions.end());
    std::int64_t reach = 0;
    for (const auto& [stride, size] : dimensions) {
      if (stride <= reach) {
        return false;
      }
      reach += stride * (size - 1);
    }
    return true;
  }

  template <typename Layer>
  void remember_members_of(const ::torch::nn::Module& module) {
    if (const auto* const layer = dynamic_cast<const Layer*>(&module)) {
      for (const at::Tensor* const member : {&layer->weight, &layer->bias}) {
        if (member->defined() && first_names_.contains(member->unsafeGetTensorImpl())) {
          members_.push_back({member, member->unsafeGetTensorImpl()});
        }
      }
    }
  }
  void remember_members(const ::torch::nn::Module& module) {
    namespace nn = ::torch::nn;
    remember_members_of<nn::LinearImpl>(module);
    remember_members_of<nn::BilinearImpl>(module);
    remember_members_of<nn::Conv1dImpl>(module);
    remember_members_of<nn::Conv2dImpl>(module);
    remember_members_of<nn::Conv3dImpl>(module);
    remember_members_of<nn::ConvTranspose1dImpl>(module);
    remember_members_of<nn::ConvTranspose2dImpl>(module);
    remember_members_of<nn::ConvTranspose3dImpl>(module);
    remember_members_of<nn::BatchNorm1dImpl>(module);
    remember_members_of<nn::BatchNorm2dImpl>(module);
    remember_members_of<nn::BatchNorm3dImpl>(module);
    remember_members_of<nn::InstanceNorm1dImpl>(module);
    remember_members_of<nn::InstanceNorm2dImpl>(module);
    remember_members_of<nn::InstanceNorm3dImpl>(module);
    remember_members_of<nn::LayerNormImpl>(module);
    remember_members_of<nn::GroupNormImpl>(module);
    for (const at::Tensor* const member :
         {weight_of<nn::EmbeddingImpl>(module), weight_of<nn::EmbeddingBagImpl>(module)}) {
      if (member != nullptr && first_names_.contains(member->unsafeGetTensorImpl())) {
        members_.push_back({member, member->unsafeGetTensorImpl()});
      }
    }
  }
  template <typename Layer>
  [[nodiscard]] static const at::Tensor* weight_of(const ::torch::nn::Module& module) {
    const auto* const layer = dynamic_cast<const Layer*>(&module);
    return layer == nullptr ? nullptr : &layer->weight;
  }

  // Whether anything owns the parameter beside the model's list of parameters, autograd's accumulator and this adapter.
  [[nodiscard]] static bool has_owners(const Entry& entry) {
    return entry.parameter.use_count() > entry.registered + 2;
  }

  // Throws where a parameter that requires a gradient was not added.
  void check_model() const {
    for (const Member& member : members_) {
      if (member.tensor->unsafeGetTensorImpl() != member.registered && member.tensor->requires_grad()) {
        throw changed("parameter " + first_names_.at(member.registered) + " was replaced by another tensor");
      }
    }
    for (const auto& item : model_.named_parameters()) {
      const at::Tensor& parameter = item.value();
      if (!parameter.requires_grad()) {
        continue;
      }
      const auto found = first_names_.find(parameter.unsafeGetTensorImpl());
      if (found == first_names_.end()) {
        throw changed("parameter " + item.key() + " is another tensor than it was, or new");
      }
      const auto entry = by_parameter_.find(found->first);
      if (entry == by_parameter_.end()) {
        throw changed("parameter " + item.key() + " required no gradient and requires one now");
      }
      if (entry->second->data != nullptr && parameter.data_ptr() != entry->second->data) {
        throw changed("the values of parameter " + item.key() + " lie elsewhere than they did, as after set_data()");
      }
    }
    for (const auto& entry : entries_) {
      if (entry->had_owners && !entry->ready && !entry->touched && !has_owners(*entry)) {
        throw changed("parameter " + entry->name + " was replaced by another tensor, since nothing uses it any more");
      }
    }
  }
  [[nodiscard]] static Error changed(const std::string& what) {
    return {ErrorCode::invalid_argument,
            "finish: " + what +
                " after the adapter was made, so its gradient would not be reduced; change parameters first, then make "
                "the session and the adapter"};
  }

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
    entry->data = scale.empty() ? parameter.data_ptr() : nullptr;
    by_parameter_.emplace(parameter.unsafeGetTensorImpl(), entry.get());
    entries_.push_back(std::move(entry));
  }

  // A gradient may lie at another address than the added one, for example after zero_grad(set_to_none).
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
  const ::torch::nn::Module& model_;
  std::vector<View> values_;
  std::vector<std::string> skipped_buffers_;
  std::unordered_map<const at::TensorImpl*, std::string> first_names_;  // of all parameters
  std::unordered_map<const at::TensorImpl*, Entry*> by_parameter_;
  std::vector<std::shared_ptr<::torch::nn::Module>> layers_;  // owners of members_
  std::vector<Member> members_;
  std::vector<std::unique_ptr<Entry>> entries_;
  BeforeReady before_ready_;
  bool no_sync_ = false;
};

}  // namespace gradwire::torch
