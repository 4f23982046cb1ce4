#include "plugins/torch_c10d/backend.hpp"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <Python.h>

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <thread>

#include "base/mutex.hpp"
#include "plugins/torch_c10d/tensor_dtype.hpp"
#include "plugins/torch_c10d/work.hpp"

namespace gradwire::torch_c10d {
namespace {

// Gloo of Torch 1.13 has no mean; there a mean is passed on and Gloo gives the error.
std::optional<Reduction> reduction_of(const c10d::ReduceOp& op) {
  switch (op.op_) {
    case c10d::ReduceOp::SUM: return Reduction::sum;
#if TORCH_VERSION_MAJOR >= 2
    case c10d::ReduceOp::AVG: return Reduction::mean;
#endif
    default: return std::nullopt;
  }
}

// Whether the elements fill their memory. Gloo takes elements in the order of memory, and in views with gaps it writes
// beyond them.
bool whole(const at::Tensor& tensor) { return tensor.is_non_overlapping_and_dense(); }

bool on_cpu(const at::Tensor& tensor) { return tensor.device().is_cpu() && tensor.layout() == at::kStrided; }

// Polls, since Store::wait() holds the store's lock: the job's own calls of the store would wait for it, and the key
// may come only after one of them. Also, 1.13 cannot use a TCPStore again whose wait() has timed out.
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

// Releases Python's global lock while this thread waits for another one, which may need it.
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

// Copies below autograd, as Gloo writes its results: autograd would refuse a tensor of inference_mode on this thread.
void copy_into(const at::Tensor& to, const at::Tensor& from) {
  const at::NoGradGuard no_grad;
  const at::AutoDispatchBelowADInplaceOrView no_checks;
  to.copy_(from);
}

// Copies to the caller's tensor if that is not contiguous, and completes the work. Never throws, although the copy may
// fail, for example if elements of the tensor share memory.
void end_work(ReductionWork& work, const at::Tensor& given, const at::Tensor& flat, std::exception_ptr error) {
  if (error || given.is_same(flat)) {
    work.complete(std::move(error));
  } else {
    work.complete_after([&] { copy_into(given, flat); });
  }
}

// Calls `ended` when the library's own call has ended, on the thread that ended it.
void follow(const WorkPointer& theirs, std::function<void(std::exception_ptr)> ended) {
  theirs->getFuture()->addCallback([ended = std::move(ended)](c10::ivalue::Future& future) {
    ended(future.hasError() ? future.exception_ptr() : nullptr);
  });
}

// Starts the library's call, and counts it if it fails at once.
template <typename Call>
WorkPointer started(const PassedCall& passed, Call&& call) {
  try {
    return call();
  } catch (...) {
    std::rethrow_exception(passed.ended(std::current_exception()));
  }
}

// Threads that destroy groups whose last user was a callback of their own reductions: that runs on the group's thread,
// which cannot wait for itself.
struct Ending {
  Mutex mutex;
  std::vector<std::thread> threads GUARDED_BY(mutex);
};

Ending& ending() {
  static auto* const instance = new Ending;  // such a callback may run after the destruction of static objects
  return *instance;
}

void end_elsewhere(std::unique_ptr<GroupEngine> engine, Inner inner) {
  const MutexLock lock(ending().mutex);
  ending().threads.emplace_back([engine = std::move(engine), inner = std::move(inner)]() mutable {
    engine.reset();
    inner = {};
  });
}

}  // namespace

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

void wait_for_ending_groups() {
  const WithoutInterpreter waiting;
  std::vector<std::thread> threads;
  {
    const MutexLock lock(ending().mutex);
    threads.swap(ending().threads);
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

GradwireBackend::GradwireBackend(const StorePointer& store, int rank, int size, const GroupEngineOptions& options,
                                 Inner inner)
    : Base(rank, size), inner_(std::move(inner)) {
  const WithoutInterpreter waiting;
  engine_ = std::make_unique<GroupEngine>(rendezvous_of(store), options);
}

GradwireBackend::~GradwireBackend() {
  if (home_.is_elsewhere()) {  // a forked child: the group's threads are the parent's
    static_cast<void>(engine_.release());
    return;
  }
  const WithoutInterpreter waiting;
  if (engine_ && engine_->on_own_thread()) {
    end_elsewhere(std::move(engine_), std::move(inner_));
    return;
  }
  engine_.reset();
  inner_ = {};
}

Base& GradwireBackend::inner_of(const at::Tensor& tensor) {
  if (tensor.device().is_cuda()) {
    TORCH_CHECK(inner_.cuda,
                "gradwire: a tensor is on a GPU, but this build of PyTorch has no NCCL; move it to the CPU");
    return *inner_.cuda;
  }
  return *inner_.cpu;
}

WorkPointer GradwireBackend::pass(const Tensors& tensors, const std::function<WorkPointer(Base&)>& call) {
  const std::uint64_t bytes = bytes_of(tensors);
  try {
    WorkPointer work = call(tensors.empty() ? *inner_.cpu : inner_of(tensors.front()));
    engine_->count_other_call(bytes, false);
    return work;
  } catch (...) {
    engine_->count_other_call(bytes, true);
    throw;
  }
}

WorkPointer GradwireBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  if (tensors.size() != 1 || !on_cpu(tensors[0])) {
    return pass(tensors, [&](Base& inner) { return inner.allreduce(tensors, opts); });
  }
  const at::Tensor tensor = tensors[0];
  Asked asked{.function = choice::Function::c10d_all_reduce,
              .dtype = dtype_of(tensor),
              .reduction = reduction_of(opts.reduceOp),
              .count = static_cast<std::uint64_t>(tensor.numel()),
              .bytes = bytes_of(tensors),
              .buffer = tensor.data_ptr(),
              .dense = whole(tensor)};
  if (!engine_->may_compress() && asked.dense) {
    return pass_as_it_is(tensors, asked, opts);
  }
  const auto work =
      c10::make_intrusive<ReductionWork>(rank_, c10d::OpType::ALLREDUCE, "gradwire:all_reduce", tensors, tensors);
  const auto fail = [work](const std::string& why) {
    work->complete(std::make_exception_ptr(std::runtime_error("gradwire: " + why)));
  };
  if (const auto passed = engine_->passes(asked, fail)) {
    pass_elements(work, tensor, *passed, opts);
    return work;
  }
  const at::Tensor flat = tensor.contiguous();  // in the same order on all ranks
  asked.buffer = flat.data_ptr();
  engine_->post(
      {.asked = std::move(asked),
       .output = flat.data_ptr(),
       .pass =
           [beside = inner_.beside, flat, opts] {
             Tensors same{flat};
             beside->allreduce(same, opts)->wait();
           },
       .done = [work, tensor, flat](std::exception_ptr error) { end_work(*work, tensor, flat, std::move(error)); }});
  return work;
}

// A group that compresses no sum gives the caller the library's own work object.
WorkPointer GradwireBackend::pass_as_it_is(Tensors& tensors, const Asked& asked, const c10d::AllreduceOptions& opts) {
  const auto passed = engine_->passes(asked);
  TORCH_INTERNAL_ASSERT(passed);
  WorkPointer theirs = started(*passed, [&] { return inner_.cpu->allreduce(tensors, opts); });
  follow(theirs, [passed = *passed](std::exception_ptr error) { passed.ended(std::move(error)); });
  return theirs;
}

// A group that compresses some sums passes the elements of each tensor in logical order, whatever the strides on this
// rank, so that a passed call gives the same sum as a compressed one of the same tensor. A group that compresses none
// does this only for views with gaps, between whose elements the library would write.
void GradwireBackend::pass_elements(const c10::intrusive_ptr<ReductionWork>& work, const at::Tensor& tensor,
                                    const PassedCall& passed, const c10d::AllreduceOptions& opts) {
  Tensors flat{tensor.contiguous()};
  const WorkPointer theirs = started(passed, [&] { return inner_.cpu->allreduce(flat, opts); });
  follow(theirs, [work, tensor, flat = flat[0], passed](std::exception_ptr error) {
    end_work(*work, tensor, flat, passed.ended(std::move(error)));
  });
}

// `input` is contiguous and holds all ranks' segments. The library's CPU backends have no reduce-scatter, so an
// uncompressed one is an all-reduce of a copy.
WorkPointer GradwireBackend::scatter_flat(const at::Tensor& output, at::Tensor input, std::vector<std::uint64_t> counts,
                                          const c10d::ReduceScatterOptions& opts) {
  Asked asked{.function = choice::Function::c10d_reduce_scatter,
              .dtype = dtype_of(input),
              .reduction = reduction_of(opts.reduceOp),
              .count = static_cast<std::uint64_t>(input.numel()),
              .bytes = bytes_of({input}),
              .buffer = input.data_ptr()};
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
  const auto sum_of = [](const at::Tensor& from) { return from.clone().flatten(); };
  const auto scatter = [offset, length](const at::Tensor& sum, const at::Tensor& to) {
    copy_into(to, sum.narrow(0, offset, length).view_as(to));
  };
  const auto fail = [work](const std::string& why) {
    work->complete(std::make_exception_ptr(std::runtime_error("gradwire: " + why)));
  };
  if (const auto passed = engine_->passes(asked, fail)) {
    Tensors sum{sum_of(input)};
    const WorkPointer theirs = started(*passed, [&] { return inner_.cpu->allreduce(sum, dense); });
    follow(theirs, [work, output, scatter, sum = sum[0], passed = *passed](std::exception_ptr error) {
      if (error = passed.ended(std::move(error)); error) {
        work->complete(std::move(error));
      } else {
        work->complete_after([&] { scatter(sum, output); });
      }
    });
    return work;
  }
  const at::Tensor result = !output.is_contiguous() ? at::empty_like(output, at::MemoryFormat::Contiguous) : output;
  engine_->post({.asked = std::move(asked),
                 .output = result.data_ptr(),
                 .counts = std::move(counts),
                 .pass =
                     [beside = inner_.beside, dense, sum_of, scatter, input, result] {
                       Tensors sum{sum_of(input)};
                       beside->allreduce(sum, dense)->wait();
                       scatter(sum[0], result);
                     },
                 .done = [work, output,
                          result](std::exception_ptr error) { end_work(*work, output, result, std::move(error)); }});
  return work;
}

WorkPointer GradwireBackend::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                            const c10d::ReduceScatterOptions& opts) {
  if (outputs.size() != 1 || inputs.size() != 1 || !on_cpu(outputs[0]) ||
      inputs[0].size() != static_cast<std::size_t>(size_)) {
    return pass(outputs, [&](Base& inner) { return inner.reduce_scatter(outputs, inputs, opts); });
  }
  std::vector<std::uint64_t> counts;
  Tensors flat;
  for (const at::Tensor& each : inputs[0]) {
    counts.push_back(static_cast<std::uint64_t>(each.numel()));
    flat.push_back(each.reshape({-1}));
  }
  return scatter_flat(outputs[0], at::cat(flat), std::move(counts), opts);
}

WorkPointer GradwireBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                  const c10d::ReduceScatterOptions& opts) {
  if (!on_cpu(output) || !on_cpu(input)) {
    return pass({input}, [&](Base& inner) { return inner._reduce_scatter_base(output, input, opts); });
  }
  TORCH_CHECK(input.numel() % size_ == 0, "gradwire: reduce_scatter: an input of ", input.numel(),
              " elements has no equal parts for ", size_, " ranks");
  const auto each = static_cast<std::uint64_t>(input.numel() / size_);
  return scatter_flat(output, input.contiguous(), std::vector<std::uint64_t>(static_cast<std::size_t>(size_), each),
                      opts);
}

}  // namespace gradwire::torch_c10d
