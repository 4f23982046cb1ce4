#include "plugins/torch_c10d/scatter_engine.hpp"

#include <vector>

#include "gradwire/communicator.hpp"
#include "plugins/torch_c10d/connect.hpp"

namespace gradwire::torch_c10d {
namespace {

class HostScatter final : public ScatterEngine {
 public:
  explicit HostScatter(const ScatterOptions& options)
      : codec_(options.codec),
        communicator_(
            connect_ranks(options.store,
                          {.rank = options.rank, .world_size = options.world_size, .timeout = options.timeout}),
            {.timeout = options.timeout}) {}

  void reduce_scatter(const ScatterCall& call) override {
    const std::vector<std::uint64_t> counts(static_cast<std::size_t>(communicator_.world_size()), call.output.count);
    communicator_.reduce_scatter(call.input, call.output, counts, {.codec = codec_, .reduction = call.reduction});
  }

 private:
  CodecSpec codec_;
  Communicator communicator_;
};

}  // namespace

std::unique_ptr<ScatterEngine> make_host_scatter_engine(const ScatterOptions& options) {
  return std::make_unique<HostScatter>(options);
}

}  // namespace gradwire::torch_c10d
