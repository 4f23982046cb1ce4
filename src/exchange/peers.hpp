// Small messages between ranks beside the data, over a transport or over a device's communicator.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "exchange/control.hpp"
#include "exchange/stream/stream_device.hpp"
#include "gradwire/dtype.hpp"
#include "gradwire/transport.hpp"
#include "wire/bytes.hpp"

namespace gradwire::exchange {

class Peers {
 public:
  Peers() = default;
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;
  virtual ~Peers() = default;

  /// Element r of the result is rank r's `mine`; sizes may differ. `what` is for messages. Blocks. Throws on failure.
  [[nodiscard]] virtual std::vector<std::string> all_gather(const std::string& mine, const std::string& what) = 0;

  /// Sends to[r] to rank r; element r of the result is what rank r sent to this one, as in Control::all_to_all.
  /// Error(unsupported) over device memory, where a session has no tables.
  using Messages = std::vector<wire::Bytes>;
  [[nodiscard]] virtual Messages all_to_all(Messages to, std::uint32_t call, const std::string& what);
  /// Does the same if this rank knows that rank r sends it sizes[r] bytes.
  [[nodiscard]] virtual Messages all_to_all(Messages to, std::span<const std::uint64_t> sizes, const std::string& what);

  /// The same as all_gather() of texts of one size, in two calls, of which the first does not wait. Null: not
  /// available.
  using Posted = Control::Posted;
  [[nodiscard]] virtual std::unique_ptr<Posted> post_all_gather(const std::string& /*mine*/) { return nullptr; }
  [[nodiscard]] virtual std::vector<std::string> complete(std::unique_ptr<Posted> /*posted*/,
                                                          const std::string& /*what*/) {
    return {};
  }
};

/// Gathers numbers: element r of the result is rank r's `mine`. Sizes::same: Error(mismatch) unless all ranks have
/// equally many.
enum class Sizes { same, any };
[[nodiscard]] std::string bytes_of(const std::vector<double>& numbers);
[[nodiscard]] std::vector<std::vector<double>> numbers_of(const std::vector<std::string>& texts);
[[nodiscard]] std::vector<std::vector<double>> gather_numbers(Peers& peers, const std::vector<double>& mine,
                                                              const std::string& what, Sizes sizes = Sizes::same);

/// The node of each rank, as Transport::nodes() says it: ranks that give the same `host` share one.
[[nodiscard]] std::vector<std::uint32_t> nodes_by_host(Peers& peers, const std::string& host);

class TransportPeers final : public Peers {
 public:
  TransportPeers(Transport& transport, std::chrono::milliseconds timeout) : control_(transport, timeout) {}
  [[nodiscard]] std::vector<std::string> all_gather(const std::string& mine, const std::string& what) override {
    return control_.all_gather(mine, what);
  }
  [[nodiscard]] Messages all_to_all(Messages to, std::uint32_t call, const std::string& what) override {
    return control_.all_to_all(std::move(to), call, what);
  }
  [[nodiscard]] Messages all_to_all(Messages to, std::span<const std::uint64_t> sizes,
                                    const std::string& what) override {
    return control_.all_to_all(std::move(to), sizes, what);
  }
  [[nodiscard]] std::unique_ptr<Posted> post_all_gather(const std::string& mine) override {
    return control_.post_all_gather(mine);
  }
  [[nodiscard]] std::vector<std::string> complete(std::unique_ptr<Posted> posted, const std::string& what) override {
    return control_.complete(std::move(posted), what);
  }
  void barrier() { control_.barrier(); }
  [[nodiscard]] double time_exchange(int to, int from, std::uint64_t bytes) {
    return control_.time_exchange(to, from, bytes);
  }

 private:
  Control control_;
};

/// Peers that exchange messages through device memory. Not usable during capture.
class DevicePeers final : public Peers {
 public:
  DevicePeers(StreamDevice& device, std::chrono::milliseconds timeout) : device_(device), timeout_(timeout) {}
  [[nodiscard]] std::vector<std::string> all_gather(const std::string& mine, const std::string& what) override;

 private:
  std::vector<std::string> exchange(const std::string& mine, std::span<const std::uint64_t> sizes);

  StreamDevice& device_;
  std::chrono::milliseconds timeout_;
};

}  // namespace gradwire::exchange
