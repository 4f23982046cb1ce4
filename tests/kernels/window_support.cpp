#include "window_support.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "tests/support/window_test_jobs.hpp"

namespace gradwire::test {
namespace {

WindowChunks chunks_of(const WindowCall& call, std::uint32_t ranks) {
  return {call.count, ranks, call.begin_tile, call.most_tiles};
}

codec::Codec codec_of(const WindowCall& call) { return {CodecSpec::parse(call.codec), call.dtype}; }

// Cuts an array into pieces of uneven lengths.
kernels::PieceTable cut(void* array, const WindowCall& call, std::vector<kernels::Piece>& pieces) {
  const std::size_t element = element_bytes(call.dtype);
  for (std::uint32_t begin = 0, i = 0; begin < call.count; begin += std::array{1U, 301U, kTile + 5, 77U}[i++ % 4]) {
    pieces.push_back({static_cast<std::uint8_t*>(array) + begin * element, begin});
  }
  pieces.push_back({nullptr, call.count});
  return {.pieces = pieces.data(), .count = static_cast<std::uint32_t>(pieces.size()) - 1};
}

}  // namespace

std::uint32_t slot_bytes_for(const char* codec, std::uint32_t elements) {
  return static_cast<std::uint32_t>(codec::Codec(CodecSpec::parse(codec), DType::f32).frame_bytes(elements));
}

WindowRank::WindowRank(const WindowCall& call, std::uint32_t rank, std::uint32_t ranks, std::uint32_t step)
    : codec(codec_of(call)),
      words(codec),
      input(as_tensor(call.dtype, inputs(call.count, 10 * step + rank, call.kind))),
      output(call.in_place ? 0 : input.bytes().size()),
      local(call.feedback ? gauss(call.count, 300 + rank + step, 0.003) : std::vector<float>()),
      owner(call.feedback ? gauss(WindowChunks(call.count, ranks).of(rank).place.count, 400 + rank + step, 0.003)
                          : std::vector<float>()),
      in_place(call.in_place) {
  words.step = step;
}

WindowNode::WindowNode(std::uint32_t ranks, std::uint32_t blocks, std::uint32_t slot_bytes, std::uint32_t epoch)
    : ranks_(ranks), blocks_(blocks), slot_bytes_((slot_bytes + 64) / 16 * 16), words_(ranks) {
  const kernels::WindowShape all = shape(0);
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    std::vector<std::uint32_t> words(kernels::window_bytes(all) / 4, kMark);
    std::fill_n(words.begin(), kernels::header_at(all, 0, 0, 0) / 4, 0U);
    std::fill_n(words.begin() + offsetof(kernels::WindowControl, epoch) / 4, kernels::kMostWindowBlocks, epoch);
    std::fill_n(words.begin() + kernels::flag_at(all, 0, 0) / 4, ranks * blocks, epoch);
    windows_.emplace_back(words);
  }
}

kernels::WindowPlaces WindowNode::places(std::uint32_t rank) {
  kernels::WindowPlaces places{.shape = shape(rank), .words = &words_[rank], .timeout_ns = timeout_ns};
  for (std::uint32_t other = 0; other < ranks_; ++other) {
    places.window[other] = windows_[other].frame();
  }
  return places;
}

void WindowNode::share(emulator::Streams& streams) {
  for (Memory& window : windows_) {
    streams.share(window.data(), window.bytes().size());
  }
}

kernels::WindowJob WindowNode::job(const WindowCall& call, std::uint32_t rank, WindowRank& memory) {
  kernels::WindowJob job = window_job(places(rank), chunks_of(call, ranks_),
                                      {.call = memory.words.fields,
                                       .input = memory.input.data(),
                                       .output = memory.out(),
                                       .dtype = call.dtype,
                                       .local = call.feedback ? memory.local.as<float>() : nullptr,
                                       .owner = call.feedback ? memory.owner.as<float>() : nullptr,
                                       .divisor = call.divisor});
  if (call.in_pieces) {
    job.encode.pieces = job.reduce.own_pieces = cut(memory.input.data(), call, memory.pieces[0]);
    job.decode.pieces = cut(memory.out(), call, memory.pieces[1]);
    job.encode.values = job.reduce.own = job.decode.values = nullptr;
  }
  return job;
}

std::vector<std::unique_ptr<WindowRank>> make_ranks(const WindowCall& call, std::uint32_t ranks, std::uint32_t step) {
  std::vector<std::unique_ptr<WindowRank>> all;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    all.push_back(std::make_unique<WindowRank>(call, rank, ranks, step));
  }
  return all;
}

SeparateFrames run_separately(const WindowNode& node, const WindowCall& call,
                              std::vector<std::unique_ptr<WindowRank>>& ranks) {
  const std::uint32_t world = node.ranks();
  SeparateFrames frames;
  const auto chunk_at = [&](std::uint32_t shard) { return chunks_of(call, world).of(shard); };
  frames.parts.resize(world);
  const std::size_t element = element_bytes(call.dtype);
  std::vector<Memory> parts;  // [source * world + shard]
  std::vector<Memory> sums;
  for (std::uint32_t i = 0; i < world * world; ++i) {
    parts.emplace_back(ranks[0]->codec.frame_bytes(chunks_of(call, world).of(i % world).place.count));
  }
  for (std::uint32_t shard = 0; shard < world; ++shard) {
    sums.emplace_back(ranks[0]->codec.frame_bytes(chunks_of(call, world).of(shard).place.count));
  }
  const auto placed = [&](std::uint32_t shard, Memory& frame, std::uint8_t hop, std::uint32_t peer) {
    kernels::FramePlace place = chunks_of(call, world).of(shard).place;
    place.bytes = frame.frame();
    place.hop = hop;
    place.peer = static_cast<int>(peer);
    return place;
  };
  for (std::uint32_t rank = 0; rank < world; ++rank) {
    WindowRank& own = *ranks[rank];
    for (std::uint32_t shard = 0; shard < world; ++shard) {
      if (const auto chunk = chunks_of(call, world).of(shard); shard != rank && chunk.place.count != 0) {
        kernels::encode({.call = own.words.fields,
                         .frame = placed(shard, parts[rank * world + shard], 0, rank),
                         .values = own.input.data() + chunk.first * element,
                         .values_dtype = call.dtype,
                         .residual = call.feedback ? own.local.as<float>() + chunk.first : nullptr},
                        nullptr);
      }
    }
  }
  for (std::uint32_t rank = 0; rank < world; ++rank) {
    WindowRank& own = *ranks[rank];
    const auto chunk = chunk_at(rank);
    if (chunk.place.count == 0) {
      continue;
    }
    const std::size_t pitch = (own.codec.frame_bytes(chunk.place.count) + 15) / 16 * 16;
    Memory terms((world - 1) * pitch);
    std::byte* next = terms.data();
    for (std::uint32_t source = 0; source < world; ++source) {
      if (source != rank) {
        const std::vector<std::byte> part = parts[source * world + rank].bytes();
        std::copy(part.begin(), part.end(), std::exchange(next, next + pitch));
      }
    }
    kernels::reduce(
        {.call = own.words.fields,
         .second = own.words.fields.codec,
         .count = chunk.place.count,
         .first_tile = chunk.place.first_tile,
         .frames = terms.frame(),
         .pitch = static_cast<std::uint32_t>(pitch),
         .ranks = static_cast<int>(world),
         .own_rank = static_cast<int>(rank),
         .own = own.input.data() + chunk.first * element,
         .own_dtype = call.dtype,
         .own_residual = call.feedback ? own.local.as<float>() + chunk.first : nullptr,
         .divisor = call.divisor,
         .out = sums[rank].frame(),
         .owner_residual = call.feedback ? own.owner.as<float>() + call.begin_tile * kernels::kTileElements : nullptr},
        nullptr);
  }
  for (std::uint32_t rank = 0; rank < world; ++rank) {
    for (std::uint32_t shard = 0; shard < world; ++shard) {
      if (const auto chunk = chunks_of(call, world).of(shard); chunk.place.count != 0) {
        kernels::decode({.call = ranks[rank]->words.fields,
                         .frame = placed(shard, sums[shard], 1, shard),
                         .values = static_cast<std::byte*>(ranks[rank]->out()) + chunk.first * element,
                         .values_dtype = call.dtype},
                        nullptr);
      }
      frames.parts[rank].push_back(parts[rank * world + shard].bytes());
    }
    frames.sums.push_back(sums[rank].bytes());
  }
  return frames;
}

void expect_equal(std::vector<std::unique_ptr<WindowRank>>& got, std::vector<std::unique_ptr<WindowRank>>& wanted) {
  for (std::size_t rank = 0; rank < got.size(); ++rank) {
    SCOPED_TRACE("rank " + std::to_string(rank));
    EXPECT_EQ(difference(got[rank]->input.bytes(), wanted[rank]->input.bytes()), "");
    EXPECT_EQ(difference(got[rank]->output.bytes(), wanted[rank]->output.bytes()), "");
    EXPECT_EQ(difference(got[rank]->local.bytes(), wanted[rank]->local.bytes()), "") << "local residual";
    EXPECT_EQ(difference(got[rank]->owner.bytes(), wanted[rank]->owner.bytes()), "") << "owner residual";
    EXPECT_EQ(got[rank]->words.status.nonfinite, wanted[rank]->words.status.nonfinite);
    EXPECT_EQ(got[rank]->words.status.bad_frames, wanted[rank]->words.status.bad_frames);
  }
}

namespace {

// The frame in a slot: the headers of all blocks must be one header, except for the flag of each block's own tiles.
std::vector<std::byte> frame_in(const std::vector<std::byte>& window, const kernels::WindowShape& shape,
                                std::uint32_t hop, std::uint32_t source, std::size_t bytes) {
  std::vector<std::byte> frame(kernels::kWindowHeaderBytes);
  std::uint32_t flags = 0;
  for (std::uint32_t block = 0; block < shape.blocks; ++block) {
    const std::size_t at = kernels::header_at(shape, hop, source, block);
    std::vector<std::byte> header(window.begin() + static_cast<std::ptrdiff_t>(at),
                                  window.begin() + static_cast<std::ptrdiff_t>(at + kernels::kWindowHeaderBytes));
    std::uint32_t word = 0;
    std::memcpy(&word, &header[4], 4);
    flags |= word & kernels::kNonfiniteBit;
    word &= ~kernels::kNonfiniteBit;
    std::memcpy(&header[4], &word, 4);
    EXPECT_TRUE(block == 0 || header == frame) << "block " << block;
    frame = header;
  }
  std::uint32_t word = 0;
  std::memcpy(&word, &frame[4], 4);
  word |= flags;
  std::memcpy(&frame[4], &word, 4);
  const auto slot = window.begin() + static_cast<std::ptrdiff_t>(kernels::slot_at(shape, hop, source));
  frame.insert(frame.end(), slot, slot + static_cast<std::ptrdiff_t>(bytes - kernels::kWindowHeaderBytes));
  return frame;
}

// Expects that of a slot so many bytes were stored, and no more.
void expect_end(const emulator::Streams& streams, Memory& window, const kernels::WindowShape& shape, std::uint32_t hop,
                std::uint32_t source, std::size_t frame_bytes) {
  const std::size_t bytes = frame_bytes == 0 ? 0 : frame_bytes - kernels::kWindowHeaderBytes;
  const std::byte* slot = window.data() + kernels::slot_at(shape, hop, source);
  EXPECT_TRUE(bytes == 0 || streams.stored(slot + bytes - 1)) << "the last byte of a frame was not stored";
  for (std::size_t i = bytes; i < shape.slot_bytes; ++i) {
    if (streams.stored(slot + i)) {
      ADD_FAILURE() << "byte " << i << " of a slot is behind its frame of " << bytes << " bytes, but was stored";
      return;
    }
  }
}

}  // namespace

void expect_frames(WindowNode& node, const WindowCall& call, const SeparateFrames& wanted,
                   const emulator::Streams& streams) {
  EXPECT_EQ(streams.stored_by_several(), 0U);
  for (std::uint32_t rank = 0; rank < node.ranks(); ++rank) {
    const std::vector<std::byte> window = node.window(rank).bytes();
    const kernels::WindowShape shape = node.places(rank).shape;
    for (std::uint32_t other = 0; other < node.ranks(); ++other) {
      SCOPED_TRACE("window of rank " + std::to_string(rank) + ", from rank " + std::to_string(other));
      const auto& part = wanted.parts[other][rank];
      const auto& sum = wanted.sums[other];
      const bool has_part = other != rank && chunks_of(call, node.ranks()).of(rank).place.count != 0;
      const bool has_sum = chunks_of(call, node.ranks()).of(other).place.count != 0;
      expect_end(streams, node.window(rank), shape, 0, other, has_part ? part.size() : 0);
      expect_end(streams, node.window(rank), shape, 1, other, has_sum ? sum.size() : 0);
      if (has_part) {
        EXPECT_EQ(difference(frame_in(window, shape, 0, other, part.size()), part), "");
      }
      if (has_sum && other != rank) {
        EXPECT_EQ(difference(frame_in(window, shape, 1, other, sum.size()), sum), "");
      }
    }
  }
}

}  // namespace gradwire::test
