#include "plugins/torch_c10d/group.hpp"

#include <ATen/ATen.h>
#include <Python.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <thread>

#include "plugins/torch_c10d/work.hpp"

namespace gradwire::torch_c10d {
namespace {

std::optional<DType> dtype_of(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat: return DType::f32;
    case at::kHalf: return DType::f16;
    case at::kBFloat16: return DType::bf16;
    case at::kDouble: return DType::f64;
    default: return std::nullopt;
  }
}

// Gloo of Torch 1.13 knows no mean, so a mean is its error to give there.
std::optional<Reduction> reduction_of(const c10d::ReduceOp& op) {
  switch (op.op_) {
    case c10d::ReduceOp::SUM: return Reduction::sum;
#if TORCH_VERSION_MAJOR >= 2
    case c10d::ReduceOp::AVG: return Reduction::mean;
#endif
    default: return std::nullopt;
  }
}

// Gloo takes the elements as they lie, which is another order, and writes past those of views with gaps.
bool whole(const at::Tensor& tensor) { return tensor.is_non_overlapping_and_dense(); }

bool on_cpu(const at::Tensor& tensor) { return tensor.device().is_cpu() && tensor.layout() == at::kStrided; }

// Store::wait() keeps the store's lock, and the job would wait for it at its own calls of the store; the key may come
// only after one of them. 1.13 cannot use a TCPStore again whose wait() has timed out, either.
void wait_for(c10d::Store& store, const std::string& key, std::chrono::milliseconds limit) {
  using std::chrono::milliseconds;
  const auto deadline = std::chrono::steady_clock::now() + limit;
  try {
    for (milliseconds pause{1}; !store.check({key}); pause = std::min(2 * pause, milliseconds(50))) {
      if (std::chrono::steady_clock::now() >= deadline) {
        throw std::runtime_error("the store has no key " + key);
      }
      std::this_thread::sleep_for(pause);
    }
  } catch (const c10::Error& error) {
    throw std::runtime_error(error.what_without_backtrace());
  }
}

transport::Rendezvous rendezvous_of(const StorePointer& store) {
  return {.put =
              [store](const std::string& key, const std::string& value) {
                store->set("gradwire/" + key, std::vector<std::uint8_t>(value.begin(), value.end()));
              },
          .get =
              [store](const std::string& key, std::chrono::milliseconds limit) {
                wait_for(*store, "gradwire/" + key, limit);
                const auto value = store->get("gradwire/" + key);
                return std::string(value.begin(), value.end());
              }};
}

// Whoever waits for another thread must not hold what that may need.
class WithoutInterpreter {
 public:
  WithoutInterpreter() : state_(Py_IsInitialized() != 0 && PyGILState_Check() != 0 ? PyEval_SaveThread() : nullptr) {}
  ~WithoutInterpreter() {
    if (state_ != nullptr) {
      PyEval_RestoreThread(state_);
    }
  }
  WithoutInterpreter(const WithoutInterpreter&) = delete;
  WithoutInterpreter& operator=(const WithoutInterpreter&) = delete;

 private:
  PyThreadState* state_;
};

std::uint64_t bytes_of(const Tensors& tensors) {
  std::uint64_t bytes = 0;
  for (const at::Tensor& tensor : tensors) {
    bytes += tensor.defined() ? static_cast<std::uint64_t>(tensor.numel()) * tensor.element_size() : 0;
  }
  return bytes;
}

// Copies to what the caller gave, where that is not contiguous, and tells the waiting ones. Never throws: elements of a
// tensor may share memory, which a copy refuses.
void end_work(ReductionWork& work, const at::Tensor& given, const at::Tensor& flat, std::exception_ptr error) {
  if (!error && !given.is_same(flat)) {
    try {
      const at::NoGradGuard no_grad;
      given.copy_(flat);
    } catch (...) {
      error = std::current_exception();
    }
  }
  work.complete(std::move(error));
}

// Groups whose last user was a callback of their own reductions. Their thread runs it, and cannot wait for itself.
struct Ending {
  std::mutex mutex;
  std::vector<std::thread> threads;
};

Ending& ending() {
  static auto* const instance = new Ending;  // such a callback may run after static objects have gone
  return *instance;
}

void end_elsewhere(std::unique_ptr<Core> core, Inner inner) {
  const std::lock_guard lock(ending().mutex);
  ending().threads.emplace_back([core = std::move(core), inner = std::move(inner)]() mutable {
    core.reset();
    inner = {};
  });
}

}  // namespace

void wait_for_ending_groups() {
  const WithoutInterpreter waiting;
  std::vector<std::thread> threads;
  {
    const std::lock_guard lock(ending().mutex);
    threads.swap(ending().threads);
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

Group::Group(const StorePointer& store, int rank, int size, const CoreOptions& options, Inner inner)
    : Base(rank, size), inner_(std::move(inner)) {
  const WithoutInterpreter waiting;
  core_ = std::make_unique<Core>(rendezvous_of(store), options);
}

Group::~Group() {
  if (home_.is_elsewhere()) {  // its threads are the parent's
    static_cast<void>(core_.release());
    return;
  }
  const WithoutInterpreter waiting;
  if (core_ && core_->on_own_thread()) {
    end_elsewhere(std::move(core_), std::move(inner_));
    return;
  }
  core_.reset();
  inner_ = {};
}

Base& Group::inner_of(const at::Tensor& tensor) {
  if (tensor.device().is_cuda()) {
    TORCH_CHECK(inner_.cuda,
                "gradwire: a tensor is on a GPU, but this build of PyTorch has no NCCL; move it to the CPU");
    return *inner_.cuda;
  }
  return *inner_.cpu;
}

Base& Group::pass(const at::Tensor& tensor) {
  core_->count_other(bytes_of({tensor}));
  return inner_of(tensor);
}

Base& Group::pass(const Tensors& tensors) {
  core_->count_other(bytes_of(tensors));
  return tensors.empty() ? *inner_.cpu : inner_of(tensors.front());
}

WorkPointer Group::allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  return all_reduce(tensors, {}, {}, opts);
}

WorkPointer Group::sum_named(Tensors& tensors, const std::string& name, std::uint64_t order) {
  return all_reduce(tensors, name, order, {});
}

WorkPointer Group::all_reduce(Tensors& tensors, const std::string& name, std::optional<std::uint64_t> order,
                              const c10d::AllreduceOptions& opts) {
  if (tensors.size() != 1 || !on_cpu(tensors[0])) {
    return pass(tensors).allreduce(tensors, opts);
  }
  const at::Tensor tensor = tensors[0];
  const auto count = static_cast<std::uint64_t>(tensor.numel());
  const auto dtype = dtype_of(tensor);
  const auto reduction = reduction_of(opts.reduceOp);
  if (!core_->takes(drop_in::Function::c10d_all_reduce, dtype, reduction, count, bytes_of(tensors))) {
    return whole(tensor) ? inner_of(tensor).allreduce(tensors, opts) : pass_view(tensor, opts);
  }
  const auto work =
      c10::make_intrusive<ReductionWork>(rank_, c10d::OpType::ALLREDUCE, "gradwire:all_reduce", tensors, tensors);
  const at::Tensor flat = tensor.contiguous();  // on all ranks in the same order
  core_->post(
      {.function = drop_in::Function::c10d_all_reduce,
       .dtype = *dtype,
       .reduction = *reduction,
       .input = flat.data_ptr(),
       .output = flat.data_ptr(),
       .count = count,
       .name = name,
       .order = order,
       .pass =
           [beside = inner_.beside, tensor, flat, opts] {
             Tensors same{whole(tensor) ? tensor : flat};
             beside->allreduce(same, opts)->wait();
             if (!flat.is_same(same[0])) {
               const at::NoGradGuard no_grad;
               flat.copy_(same[0]);
             }
           },
       .done = [work, tensor, flat](std::exception_ptr error) { end_work(*work, tensor, flat, std::move(error)); }});
  return work;
}

// Where Gloo would write what lies between. Returns when the sum is made.
WorkPointer Group::pass_view(const at::Tensor& tensor, const c10d::AllreduceOptions& opts) {
  const auto work = c10::make_intrusive<ReductionWork>(rank_, c10d::OpType::ALLREDUCE, "gradwire:all_reduce",
                                                       Tensors{tensor}, Tensors{tensor});
  Tensors flat{tensor.contiguous()};
  inner_.cpu->allreduce(flat, opts)->wait();
  end_work(*work, tensor, flat[0], nullptr);
  return work;
}

// `input`: contiguous, all ranks' segments. The libraries' CPU backends know no reduce-scatter, so what is not
// compressed is an all-reduce of a copy.
WorkPointer Group::scatter_flat(const at::Tensor& output, at::Tensor input, std::vector<std::uint64_t> counts,
                                const c10d::ReduceScatterOptions& opts) {
  const auto count = static_cast<std::uint64_t>(input.numel());
  const auto dtype = dtype_of(input);
  const auto reduction = reduction_of(opts.reduceOp);
  const auto own = static_cast<std::size_t>(rank_);
  std::int64_t offset = 0;
  for (std::size_t rank = 0; rank < own; ++rank) {
    offset += static_cast<std::int64_t>(counts[rank]);
  }
  const auto length = static_cast<std::int64_t>(counts[own]);
  TORCH_CHECK(output.numel() == length && output.scalar_type() == input.scalar_type(),
              "gradwire: reduce_scatter: rank ", rank_, " gives an output of ", output.numel(), " elements of ",
              output.scalar_type(), " for a segment of ", length, " of ", input.scalar_type());
  const auto work = c10::make_intrusive<ReductionWork>(rank_, c10d::OpType::REDUCE_SCATTER, "gradwire:reduce_scatter",
                                                       Tensors{output}, Tensors{input});
  c10d::AllreduceOptions dense;
  dense.reduceOp = opts.reduceOp;
  dense.timeout = opts.timeout;
  const auto by_all_reduce = [dense, offset, length](Base& group, const at::Tensor& from, const at::Tensor& to) {
    Tensors copy{from.clone().flatten()};
    group.allreduce(copy, dense)->wait();
    const at::NoGradGuard no_grad;
    to.copy_(copy[0].narrow(0, offset, length).view_as(to));
  };
  if (!core_->takes(drop_in::Function::c10d_reduce_scatter, dtype, reduction, count, bytes_of({input}))) {
    by_all_reduce(*inner_.cpu, input, output);
    work->complete(nullptr);
    return work;
  }
  const at::Tensor result = !output.is_contiguous() ? at::empty_like(output, at::MemoryFormat::Contiguous) : output;
  core_->post(
      {.function = drop_in::Function::c10d_reduce_scatter,
       .dtype = *dtype,
       .reduction = *reduction,
       .input = input.data_ptr(),
       .output = result.data_ptr(),
       .count = count,
       .counts = std::move(counts),
       .pass = [beside = inner_.beside, by_all_reduce, input, result] { by_all_reduce(*beside, input, result); },
       .done = [work, output,
                result](std::exception_ptr error) { end_work(*work, output, result, std::move(error)); }});
  return work;
}

WorkPointer Group::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                  const c10d::ReduceScatterOptions& opts) {
  if (outputs.size() != 1 || inputs.size() != 1 || !on_cpu(outputs[0]) ||
      inputs[0].size() != static_cast<std::size_t>(size_)) {
    return pass(outputs).reduce_scatter(outputs, inputs, opts);
  }
  std::vector<std::uint64_t> counts;
  Tensors flat;
  for (const at::Tensor& each : inputs[0]) {
    counts.push_back(static_cast<std::uint64_t>(each.numel()));
    flat.push_back(each.reshape({-1}));
  }
  return scatter_flat(outputs[0], at::cat(flat), std::move(counts), opts);
}

WorkPointer Group::_reduce_scatter_base(at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& opts) {
  if (!on_cpu(output) || !on_cpu(input)) {
    return pass(input)._reduce_scatter_base(output, input, opts);
  }
  TORCH_CHECK(input.numel() % size_ == 0, "gradwire: reduce_scatter: an input of ", input.numel(),
              " elements has no equal parts for ", size_, " ranks");
  const auto each = static_cast<std::uint64_t>(input.numel() / size_);
  return scatter_flat(output, input.contiguous(), std::vector<std::uint64_t>(static_cast<std::size_t>(size_), each),
                      opts);
}

}  // namespace gradwire::torch_c10d
