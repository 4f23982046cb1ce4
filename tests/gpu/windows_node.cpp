#include "tests/gpu/windows_node.hpp"

#include <algorithm>

#include "tests/gpu/device_cuda.hpp"
#include "tests/support/window_test_jobs.hpp"

namespace gradwire::gpu {
namespace {

using test::WindowChunks;

Bytes residuals(std::uint64_t count, unsigned seed, bool feedback) {
  return feedback ? tensor(DType::f32, count, seed) : Bytes();
}

}  // namespace

std::uint32_t window_slot_bytes(const Case& codec, std::uint32_t count, std::uint32_t ranks) {
  const auto bytes = codec.codec().frame_bytes(WindowChunks(count, ranks).place.count);
  return static_cast<std::uint32_t>((bytes + 255) / 256 * 256);
}

WindowRank::WindowRank(const WindowCall& call, std::uint32_t rank, std::uint32_t ranks)
    : words(call.codec.frame_codec()),
      values(tensor(call.codec.dtype, call.count, rank + 1, call.kind)),
      local(residuals(call.count, rank + 100, call.feedback)),
      owner(residuals(WindowChunks(call.count, ranks).of(rank).place.count, rank + 200, call.feedback)) {}

WindowRanks make_window_ranks(const WindowCall& call, std::uint32_t ranks) {
  WindowRanks all;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    all.push_back(std::make_unique<WindowRank>(call, rank, ranks));
  }
  return all;
}

WindowNode::WindowNode(std::uint32_t ranks, std::uint32_t slot_bytes, std::uint32_t most_blocks)
    : ranks_(ranks),
      blocks_(std::min(most_blocks, kernels::resident_window_blocks() / ranks)),
      slot_bytes_(slot_bytes) {
  void* words = nullptr;
  cuda(cudaHostAlloc(&words, ranks * sizeof(kernels::WindowWords), cudaHostAllocPortable), "cudaHostAlloc");
  words_ = new (words) kernels::WindowWords[ranks];
  const std::uint64_t bytes = kernels::window_bytes({ranks_, 0, blocks_, slot_bytes_});
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    windows_.emplace_back(Bytes(bytes));
    streams_.push_back(std::make_unique<Stream>());
  }
}

WindowNode::~WindowNode() { cudaFreeHost(words_); }

kernels::WindowPlaces WindowNode::places(std::uint32_t rank) const {
  kernels::WindowPlaces places{
      .shape = {ranks_, rank, blocks_, slot_bytes_}, .words = &words_[rank], .timeout_ns = timeout_ns};
  for (std::uint32_t other = 0; other < ranks_; ++other) {
    places.window[other] = windows_[other].frame();
  }
  return places;
}

kernels::WindowJob WindowNode::job(const WindowCall& call, std::uint32_t rank, const WindowRank& memory) const {
  return test::window_job(places(rank), WindowChunks(call.count, ranks_),
                          {.call = memory.words.fields(),
                           .input = memory.values.data(),
                           .output = memory.values.data(),
                           .dtype = call.codec.dtype,
                           .local = call.feedback ? memory.local.as<float>() : nullptr,
                           .owner = call.feedback ? memory.owner.as<float>() : nullptr,
                           .divisor = static_cast<double>(ranks_)});
}

void enqueue(const WindowNode& node, const WindowCall& call, std::uint32_t rank, const WindowRank& memory) {
  kernels::all_reduce_windows(node.job(call, rank, memory), node.stream(rank));
}

void run_separately(const WindowCall& call, const WindowRanks& ranks, std::vector<Memory>& frames,
                    cudaStream_t stream) {
  const auto all = static_cast<std::uint32_t>(ranks.size());
  const std::size_t element = element_bytes(call.codec.dtype);
  const auto chunk_at = [&](std::uint32_t shard) { return WindowChunks(call.count, all).of(shard); };
  const std::uint32_t pitch = window_slot_bytes(call.codec, call.count, all);
  if (frames.empty()) {  // those that each owner sums, beside each other; then the sums
    for (std::uint32_t i = 0; i < 2 * all; ++i) {
      frames.emplace_back(i < all ? std::size_t{all - 1} * pitch : pitch);
    }
  }
  const auto part_of = [&](std::uint32_t shard, std::uint32_t source) {
    return frames[shard].frame() + std::size_t{source > shard ? source - 1 : source} * pitch;
  };
  const auto placed = [&](std::uint32_t shard, std::uint8_t* frame, std::uint8_t hop, std::uint32_t peer) {
    kernels::FramePlace place = WindowChunks(call.count, all).of(shard).place;
    place.bytes = frame;
    place.hop = hop;
    place.peer = static_cast<int>(peer);
    return place;
  };
  for (std::uint32_t rank = 0; rank < all; ++rank) {
    for (std::uint32_t shard = 0; shard < all; ++shard) {
      const auto chunk = chunk_at(shard);
      if (shard != rank && chunk.place.count != 0) {
        kernels::EncodeJob job;
        job.call = ranks[rank]->words.fields();
        job.frame = placed(shard, part_of(shard, rank), 0, rank);
        job.values = ranks[rank]->values.data() + chunk.first * element;
        job.values_dtype = call.codec.dtype;
        job.residual = call.feedback ? ranks[rank]->local.as<float>() + chunk.first : nullptr;
        kernels::encode(job, stream);
      }
    }
  }
  for (std::uint32_t rank = 0; rank < all; ++rank) {
    const auto chunk = chunk_at(rank);
    kernels::ReduceJob job;
    job.call = ranks[rank]->words.fields();
    job.second = job.call.codec;
    job.count = chunk.place.count;
    job.first_tile = chunk.place.first_tile;
    job.frames = frames[rank].frame();
    job.pitch = pitch;
    job.ranks = static_cast<int>(all);
    job.own_rank = static_cast<int>(rank);
    job.own = ranks[rank]->values.data() + chunk.first * element;
    job.own_dtype = call.codec.dtype;
    job.own_residual = call.feedback ? ranks[rank]->local.as<float>() + chunk.first : nullptr;
    job.divisor = all;
    job.out = frames[all + rank].frame();
    job.owner_residual = call.feedback ? ranks[rank]->owner.as<float>() : nullptr;
    if (job.count != 0) {
      kernels::reduce(job, stream);
    }
  }
  for (std::uint32_t rank = 0; rank < all; ++rank) {
    for (std::uint32_t shard = 0; shard < all; ++shard) {
      const auto chunk = chunk_at(shard);
      if (chunk.place.count != 0) {
        kernels::DecodeJob job;
        job.call = ranks[rank]->words.fields();
        job.frame = placed(shard, frames[all + shard].frame(), 1, shard);
        job.values = ranks[rank]->values.data() + chunk.first * element;
        job.values_dtype = call.codec.dtype;
        kernels::decode(job, stream);
      }
    }
  }
}

void compare_with_separate(Check& check, const WindowCall& call, std::uint32_t ranks) {
  const std::string what = call.codec.name() + " x " + std::to_string(call.count) + ", " + std::to_string(ranks) +
                           " ranks" + (call.feedback ? ", feedback" : "");
  const WindowNode node(ranks, window_slot_bytes(call.codec, call.count, ranks), call.most_blocks);
  const WindowRanks got = make_window_ranks(call, ranks);
  const WindowRanks wanted = make_window_ranks(call, ranks);
  const Stream stream;
  std::vector<Memory> frames;
  for (int step = 0; step < 2; ++step) {  // the second one has the residuals of the first
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      enqueue(node, call, rank, *got[rank]);
    }
    synchronize();
    run_separately(call, wanted, frames, static_cast<cudaStream_t>(stream.get()));
    synchronize();
  }
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    const std::string here = what + ", rank " + std::to_string(rank);
    check.that(node.words(rank).missing == 0, here + ": a rank was waited for in vain");
    check.same_elements(call.codec.dtype, read_intact(check, got[rank]->values, here),
                        read_intact(check, wanted[rank]->values, here), here + ", result");
    check.same_bytes(read_intact(check, got[rank]->local, here), read_intact(check, wanted[rank]->local, here),
                     here + ", local residual");
    check.same_bytes(read_intact(check, got[rank]->owner, here), read_intact(check, wanted[rank]->owner, here),
                     here + ", owner residual");
    check.that(got[rank]->words.status().nonfinite == wanted[rank]->words.status().nonfinite, here + ", note of NaN");
  }
}

}  // namespace gradwire::gpu
