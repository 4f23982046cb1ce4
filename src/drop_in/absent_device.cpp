#include "drop_in/absent_device.hpp"

#include <utility>

#include "exchange/stream/null_backend.hpp"

namespace gradwire::drop_in {
namespace {

class NoMemory final : public memory::ArenaSource {
 public:
  [[nodiscard]] std::byte* allocate(std::size_t /*bytes*/) override { return nullptr; }
  void free(std::byte* /*slab*/) noexcept override {}
  [[nodiscard]] std::string why() const override { return "the device refuses"; }
};

class AbsentDevice final : public exchange::StreamDevice {
 public:
  AbsentDevice(int rank, int world_size, const Error& why)
      : why_(why), arena_(memory_, 1), backend_(arena_, rank, world_size) {}

  [[nodiscard]] exchange::StreamBackend& backend() noexcept override { return backend_; }
  [[nodiscard]] memory::Arena& arena() noexcept override { return arena_; }
  [[nodiscard]] std::string name() const override { return "absent"; }
  [[nodiscard]] std::uint64_t pinned_bytes() const noexcept override { return 0; }
  [[nodiscard]] int enter() override { return 0; }
  void leave(int /*previous*/) noexcept override {}
  void follow_caller() override {}
  void lead_caller() override {}
  [[nodiscard]] bool capturing() override { return false; }
  [[nodiscard]] Point mark() override { return 0; }
  [[nodiscard]] bool reached(Point /*point*/) override { return true; }
  void wait(Point /*point*/, std::chrono::milliseconds /*timeout*/) override {}
  void wait_alone(Point /*point*/, std::chrono::milliseconds /*timeout*/) override {}
  void download(std::span<std::byte> /*to*/, const void* /*from*/, std::chrono::milliseconds /*timeout*/) override {
    throw Error(why_);
  }
  void load_kernels() override { throw Error(why_); }
  void upload(void* /*to*/, std::span<const std::byte> /*from*/) override { throw Error(why_); }
  void zero(void* /*data*/, std::size_t /*bytes*/) override {}
  void advance(std::uint32_t* /*step*/) override {}
  [[nodiscard]] kernels::DeviceStatus& status() noexcept override { return status_; }
  [[nodiscard]] std::uint32_t nonfinite_steps() noexcept override { return 0; }
  void check(const void* /*data*/, const std::string& /*what*/) override {}
  void poll() override {}
  void abort(const Error& /*error*/) noexcept override {}
  void end_messages(std::chrono::milliseconds /*timeout*/) override {}

 private:
  Error why_;
  NoMemory memory_;
  memory::Arena arena_;
  exchange::NullBackend backend_;
  kernels::DeviceStatus status_;
};

// Its rank exchanges nothing behind the agreement, and times nothing.
class AbsentLink final : public DeviceLink, private ExchangePort, private DeviceClock {
 public:
  AbsentLink(int rank, int world_size, std::shared_ptr<RankGather> gather, const Error& why)
      : gather_(std::move(gather)), device_(rank, world_size, why) {}

  [[nodiscard]] exchange::StreamDevice& device() noexcept override { return device_; }
  void set_caller(void* /*stream*/) override {}
  void begin_run(bool /*captured*/) override {}
  void end_run(bool /*captured*/) override {}
  [[nodiscard]] RankGather& gather() noexcept override { return *gather_; }
  [[nodiscard]] ExchangePort& exchange_port() noexcept override { return *this; }
  [[nodiscard]] DeviceClock& clock() noexcept override { return *this; }
  [[nodiscard]] memory::Arena& lasting() noexcept override { return device_.arena(); }
  [[nodiscard]] memory::ArenaSource& loans() noexcept override { return none_; }

 private:
  void begin(std::span<const std::uint32_t> /*mine*/, void* /*stream*/) override {}
  [[nodiscard]] bool arrived() override { return true; }
  void finish(std::span<std::uint32_t> /*largest*/, std::chrono::milliseconds /*timeout*/) override {}
  void meet(void* /*stream*/) override {}
  [[nodiscard]] Mark mark(void* /*stream*/) override { return 0; }
  [[nodiscard]] bool reached(Mark /*mark*/) override { return true; }
  [[nodiscard]] std::optional<double> seconds(Mark /*begin*/, Mark /*end*/) override { return std::nullopt; }
  void drop(Mark /*mark*/) noexcept override {}

  std::shared_ptr<RankGather> gather_;
  NoMemory none_;
  AbsentDevice device_;
};

}  // namespace

std::unique_ptr<DeviceLink> make_absent_link(int rank, int world_size, std::shared_ptr<RankGather> gather,
                                             const Error& why) {
  return std::make_unique<AbsentLink>(rank, world_size, std::move(gather), why);
}

}  // namespace gradwire::drop_in
