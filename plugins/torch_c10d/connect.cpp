#include "plugins/torch_c10d/connect.hpp"

#include <algorithm>
#include <exception>

#include "base/environment.hpp"
#include "plugins/torch_c10d/over_mpi.hpp"

namespace gradwire::torch_c10d {

std::string get_while(const transport::Rendezvous& store, const std::string& key, std::chrono::milliseconds limit,
                      const std::function<void()>& go_on) {
  constexpr std::chrono::milliseconds kSlice{500};
  for (std::chrono::milliseconds left = limit;; left -= kSlice) {
    if (go_on) {
      go_on();
    }
    try {
      return store.get(key, std::min(left, kSlice));
    } catch (const std::exception&) {
      if (left <= kSlice) {
        throw;
      }
    }
  }
}

std::shared_ptr<Transport> connect_ranks(const transport::Rendezvous& store, const ConnectOptions& options) {
  const transport::Rendezvous watched{.put = store.put,
                                      .get = [&](const std::string& key, std::chrono::milliseconds limit) {
                                        return get_while(store, key, limit, options.go_on);
                                      }};
  if (environment("GRADWIRE_TORCH_TRANSPORT") == "mpi") {
    return connect_over_mpi(watched, options.rank, options.world_size, options.timeout);
  }
  return transport::make_tcp(watched, {.rank = options.rank,
                                       .world_size = options.world_size,
                                       .interface = environment("GRADWIRE_SOCKET_IFNAME").value_or(""),
                                       .timeout = options.timeout,
                                       .go_on = options.go_on});
}

}  // namespace gradwire::torch_c10d
