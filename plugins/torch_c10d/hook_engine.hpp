// The part of a DDP communication hook that does not need Torch: a session whose tensors are the model's parameters,
// fed by DDP's buckets. Residuals belong to parameters, so they stay when DDP arranges its buckets anew.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gradwire/dtype.hpp"
#include "gradwire/policy.hpp"
#include "gradwire/session.hpp"
#include "gradwire/statistics.hpp"
#include "transport/tcp/tcp_transport.hpp"

namespace gradwire::torch_c10d {

/// A parameter of the model, as rules of the policy see it.
struct HookParameter {
  std::string name;
  std::uint32_t ndim = 1;
};

/// A gradient inside a bucket: its parameter by number, and its memory (on the host or on the hook's device).
struct HookGradient {
  std::size_t parameter = 0;
  View view;
};

/// A bucket whose gradients this rank has computed. Its memory must stay valid until `done` is called.
struct HookBucket {
  bool first = false;  // of the backward pass
  bool last = false;
  std::vector<HookGradient> gradients = {};
  void* stream = nullptr;                             // the cudaStream_t with the gradients' computation
  std::function<void(std::exception_ptr)> done = {};  // called once, on any thread; must not throw
};

struct HookOptions {
  int rank = 0;
  int world_size = 1;
  Policy policy = {};
  std::chrono::milliseconds timeout{std::chrono::minutes(30)};  // for any single wait
  std::vector<HookParameter> parameters = {};
  transport::Rendezvous store = {};  // with keys of this hook alone
  int device = 0;                    // of CUDA; for gradients in its memory
  /// Gets what a session of the hook has reduced, when it ends. An exception is ignored.
  std::function<void(const SessionStatistics&)> ended = {};
};

class HookEngine {
 public:
  HookEngine() = default;
  HookEngine(const HookEngine&) = delete;
  HookEngine& operator=(const HookEngine&) = delete;
  /// As close().
  virtual ~HookEngine() = default;

  /// Reduces the bucket's gradients to their mean over the ranks, in place. Every rank posts the same buckets of the
  /// same gradients in the same order. The first backward pass makes the session, once its last bucket is there. On the
  /// host a thread of the engine does the work; on a device this call enqueues it behind `stream`, and `stream` has the
  /// results when `done` is called. After an error, which ends the other ranks' steps too, all later buckets fail.
  virtual void post(HookBucket bucket) = 0;

  // These wait for posted buckets, and belong between two backward passes.

  /// This rank's residuals and step, in the format of Session::save(). Empty before the first backward pass.
  [[nodiscard]] virtual std::string save() = 0;
  /// `states` are what save() returned: one of this rank, from a job of as many ranks, or those of all ranks of a job
  /// of any size, in any order. Takes effect in the next backward pass, which begins a new session; with no states, or
  /// empty ones, it begins anew. On every rank. Error(corrupt), Error(mismatch) for states that do not fit; the engine
  /// is then as before.
  virtual void load(const std::vector<std::string>& states) = 0;
  /// The number of the coming step, from 0 on.
  [[nodiscard]] virtual std::uint64_t step() = 0;
  /// Sets the factor by which gradients are too large, as a loss scaler does; residuals are rescaled.
  virtual void set_loss_scale(double scale) = 0;
  /// Session::statistics() as JSON; empty before the first backward pass.
  [[nodiscard]] virtual std::string statistics() = 0;
  [[nodiscard]] virtual std::uint64_t residual_bytes() = 0;
  /// Session::explain(); empty before the first backward pass.
  [[nodiscard]] virtual std::string explain() = 0;

  /// Gives up on every rank, for an error of this rank outside of the engine.
  virtual void abort(const std::string& why) noexcept = 0;
  /// Ends a backward pass that is under way with an error, and joins the engine's thread. Later calls of post() fail.
  virtual void close() noexcept = 0;
};

/// What a hook's sessions reduce over.
class HookMember {
 public:
  HookMember() = default;
  HookMember(const HookMember&) = delete;
  HookMember& operator=(const HookMember&) = delete;
  virtual ~HookMember() = default;

  /// Collective. Makes a session; `store` has keys that no earlier session of this hook has used. `go_on` is called
  /// often while it waits; an exception ends the wait.
  [[nodiscard]] virtual Session make_session(const HookOptions& options, const transport::Rendezvous& store,
                                             const std::function<void()>& go_on) = 0;
  /// Whether the session only enqueues work, so that the caller of post() does it.
  [[nodiscard]] virtual bool enqueues() const noexcept = 0;
  /// Sets the stream with the caller's work, from here on.
  virtual void set_stream(void* /*stream*/) {}
};

/// Makes an engine over `member`. It checks nothing and connects to nobody before the first backward pass has ended.
[[nodiscard]] std::unique_ptr<HookEngine> make_hook_engine(HookOptions options, std::unique_ptr<HookMember> member);
/// The same for gradients in host memory, over TCP connections that the session makes.
[[nodiscard]] std::unique_ptr<HookEngine> make_host_hook_engine(HookOptions options);

/// Tells ranks that wait for this one in their first backward pass why it does not come: it could make no engine.
void tell_of_failure(const transport::Rendezvous& store, int rank, const std::string& why) noexcept;

/// The options of the sessions that members make.
[[nodiscard]] SessionOptions session_options(const HookOptions& options);

/// The function that the shared object with the device's part exports. It makes an engine over CUDA, which the caller
/// owns. Error(unsupported) where there is no driver, Error(invalid_argument) where the device is not there.
inline constexpr const char* kDeviceHookFunction = "gradwire_torch_make_device_hook_engine";
using DeviceHookFunction = HookEngine* (*)(const HookOptions&);

}  // namespace gradwire::torch_c10d
