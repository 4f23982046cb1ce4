#include "tests/support/simulated_codecs.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "codec/preconditioner.hpp"
#include "codec/tensor_list.hpp"
#include "gradwire/error.hpp"
#include "kernels/array_hash.hpp"
#include "tests/support/single_frames.hpp"

namespace gradwire::test {
namespace {

using codec::Codec;
using codec::FrameReader;
using codec::FrameWriter;
using codec::TensorList;
using codec::Working;

struct Tiles {
  alignas(64) std::byte sum[codec::kTileElements * sizeof(double)];
  alignas(64) std::byte input[codec::kTileElements * sizeof(double)];
};

template <class Body>
void for_each_tile(std::uint64_t count, Body&& body) {
  for (std::uint64_t done = 0; done < count; done += codec::kTileElements) {
    body(done, static_cast<std::uint32_t>(std::min<std::uint64_t>(codec::kTileElements, count - done)));
  }
}

Codec bound(const kernels::FrameCodec& codec) { return {{codec.id, codec.k}, codec.dtype}; }

TensorList list_of(const void* in, void* out, DType dtype, Working working, std::uint64_t count) {
  TensorList list(dtype, working);
  list.append(in, out, count);
  return list;
}

codec::FrameInfo info_of(const kernels::CallFields& call, std::uint32_t count, std::uint32_t first_tile,
                         std::uint8_t hop) {
  return {.count = count, .first_tile = first_tile, .bucket = call.bucket, .step = *call.step, .hop = hop};
}

std::span<const std::byte> frame_at(const Codec& codec, const std::uint8_t* bytes, std::uint32_t count) {
  return {reinterpret_cast<const std::byte*>(bytes), codec.frame_bytes(count)};
}

template <class T>
void fold_values(float* residual, double factor, T* values, std::uint64_t count) {
  for (std::uint64_t i = 0; i < count; ++i) {
    if (residual[i] != 0) {
      values[i] += static_cast<T>(factor) * static_cast<T>(residual[i]);
      residual[i] = 0;
    }
  }
}

void fold_working(float* residual, double factor, Working working, void* values, std::uint64_t count) {
  if (working == Working::f64) {
    fold_values(residual, factor, static_cast<double*>(values), count);
  } else {
    fold_values(residual, factor, static_cast<float*>(values), count);
  }
}

void note_bad(const kernels::CallFields& call, int peer) {
  ++call.status->bad_frames;
  call.status->first_bad = call.by_rank ? static_cast<std::uint32_t>(peer + 1) : call.status->first_bad;
}

void fill_nan(void* values, Working working, std::uint32_t count) {
  for (std::uint32_t i = 0; i < count; ++i) {
    if (working == Working::f64) {
      static_cast<double*>(values)[i] = std::numeric_limits<double>::quiet_NaN();
    } else {
      static_cast<float*>(values)[i] = std::numeric_limits<float>::quiet_NaN();
    }
  }
}

// Copies elements [0, count) of a job's pieces to `run`, or back; a null tensor has zeros.
void copy_pieces(const kernels::PieceTable& table, std::uint64_t count, DType dtype, std::byte* run, bool to_run) {
  const std::size_t element = element_bytes(dtype);
  for (std::uint32_t i = 0; i < table.count; ++i) {
    const kernels::Piece& piece = table.pieces[i];
    const std::uint64_t begin = std::max(piece.begin, table.first);
    const std::uint64_t end = std::min(table.pieces[i + 1].begin, table.first + count);
    if (begin >= end) {
      continue;
    }
    std::byte* there = run + (begin - table.first) * element;
    if (piece.tensor == nullptr) {
      std::memset(there, 0, (end - begin) * element);
      continue;
    }
    auto* tensor = reinterpret_cast<std::byte*>(piece.tensor) + (begin - piece.begin) * element;
    std::memcpy(to_run ? there : tensor, to_run ? tensor : there, (end - begin) * element);
  }
}

// The elements of a job's pieces in one array.
std::vector<std::byte> array_of(const kernels::PieceTable& table, std::uint64_t count, DType dtype) {
  std::vector<std::byte> run(count * element_bytes(dtype));
  copy_pieces(table, count, dtype, run.data(), true);
  return run;
}

void encode_one(const kernels::EncodeJob& job) {
  const Codec codec = bound(job.call.codec);
  const std::uint32_t count = job.frame.count;
  FrameWriter writer(codec, info_of(job.call, count, job.frame.first_tile, job.frame.hop), false,
                     {reinterpret_cast<std::byte*>(job.frame.bytes), codec.frame_bytes(count)});
  const bool verbatim =
      !codec.lossy() && codec.dtype() == job.values_dtype && job.factor == 1 && job.residual == nullptr;
  const Working working = codec.working();
  const TensorList values = list_of(job.values, nullptr, job.values_dtype, working, count);
  Tiles tiles;
  for_each_tile(count, [&](std::uint64_t first, std::uint32_t n) {
    if (verbatim) {
      writer.write_verbatim(values.load_verbatim(first, n, tiles.input), n);
      return;
    }
    const void* tile = values.load(first, n, tiles.input);
    if (job.factor != 1) {
      codec::multiply(working, tile, job.factor, tiles.input, n);
      tile = tiles.input;
    }
    writer.write(tile, job.residual == nullptr ? nullptr : job.residual + first, n);
  });
  if (writer.finish()) {
    job.call.status->nonfinite = 1;
  }
}

void decode_one(const kernels::DecodeJob& job) {
  const Codec codec = bound(job.call.codec);
  const std::uint32_t count = job.frame.count;
  const TensorList values = list_of(nullptr, job.values, job.values_dtype, codec.working(), count);
  const bool as_stored = !codec.lossy() && codec.dtype() == job.values_dtype;
  Tiles tiles;
  try {
    FrameReader reader(codec, info_of(job.call, count, job.frame.first_tile, job.frame.hop), false,
                       frame_at(codec, job.frame.bytes, count), job.frame.peer);
    for_each_tile(count, [&](std::uint64_t first, std::uint32_t n) {
      if (as_stored) {
        void* to = values.target_verbatim(first, n, tiles.sum);
        reader.read_verbatim(to, n);
        values.store_verbatim(first, n, to);
        return;
      }
      void* to = values.target(first, n, tiles.sum);
      reader.read(to, n);
      values.store(first, n, to);
      job.call.status->nonfinite |= values.finite_outputs(first, n) ? 0U : 1U;
    });
    job.call.status->nonfinite |= reader.nonfinite() ? 1U : 0U;
  } catch (const Error&) {
    note_bad(job.call, job.frame.peer);
    for_each_tile(count, [&](std::uint64_t first, std::uint32_t n) {
      fill_nan(tiles.sum, codec.working(), n);
      values.store(first, n, tiles.sum);
    });
  }
}

}  // namespace

void run_open_headers(std::span<const kernels::HeaderJob> /*jobs*/) {}

void run_encode(const kernels::EncodeJob& jobs) {
  for (kernels::EncodeJob job : single_frames(jobs)) {
    std::vector<std::byte> values;
    if (job.pieces.count != 0) {
      values = array_of(job.pieces, job.frame.count, job.values_dtype);
      job.values = values.data();
    }
    encode_one(job);
  }
}

void run_decode(const kernels::DecodeJob& jobs) {
  for (kernels::DecodeJob job : single_frames(jobs)) {
    std::vector<std::byte> values;
    if (job.pieces.count != 0) {
      values = array_of(job.pieces, job.frame.count, job.values_dtype);
      job.values = values.data();
    }
    decode_one(job);
    copy_pieces(job.pieces, job.frame.count, job.values_dtype, values.data(), false);
  }
}
namespace {

// Writes one tile of the rank's own part to `sum`, or adds it.
void add_own(const kernels::ReduceJob& job, const TensorList& own, Working working, std::uint64_t first,
             std::uint32_t n, bool overwrite, Tiles& tiles) {
  const void* tile = own.load(first, n, tiles.input);
  const std::size_t bytes = n * (working == Working::f64 ? sizeof(double) : sizeof(float));
  if (tile != tiles.input) {
    std::memcpy(tiles.input, tile, bytes);
  }
  if (job.factor != 1) {
    codec::multiply(working, tiles.input, job.factor, tiles.input, n);
  }
  if (job.own_residual != nullptr) {
    fold_working(job.own_residual + first, 1.0, working, tiles.input, n);
  }
  if (overwrite) {
    std::memcpy(tiles.sum, tiles.input, bytes);
  } else {
    codec::add(working, tiles.sum, tiles.input, n);
  }
}

void reduce_arrays(const kernels::ReduceJob& job) {
  const auto ranks = static_cast<std::size_t>(job.ranks);
  const Codec codec = bound(job.call.codec);
  const Working working = codec.working();
  const TensorList own = list_of(job.own, nullptr, job.own_dtype, working, job.count);
  const TensorList result = list_of(nullptr, job.result, job.result_dtype, working, job.count);
  std::vector<std::optional<FrameReader>> readers(ranks);
  std::vector<bool> bad(ranks);
  const std::uint8_t* next = job.frames;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    if (static_cast<int>(rank) == job.own_rank) {
      continue;
    }
    const std::uint8_t* frame = std::exchange(next, next + job.pitch);
    try {
      readers[rank].emplace(codec, info_of(job.call, job.count, job.first_tile, 0), false,
                            frame_at(codec, frame, job.count), static_cast<int>(rank));
    } catch (const Error&) {
      bad[rank] = true;
      note_bad(job.call, static_cast<int>(rank));
    }
  }
  std::optional<Codec> second;
  std::optional<FrameWriter> writer;
  if (job.out != nullptr) {
    second.emplace(bound(job.second));
    writer.emplace(*second, info_of(job.call, job.count, job.first_tile, 1), false,
                   std::span(reinterpret_cast<std::byte*>(job.out), second->frame_bytes(job.count)));
  }
  const double divisor = job.device_divisor != nullptr ? *job.device_divisor : job.divisor;
  Tiles tiles;
  for_each_tile(job.count, [&](std::uint64_t first, std::uint32_t n) {
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      if (bad[rank]) {
        fill_nan(tiles.sum, working, n);
      } else if (readers[rank]) {
        rank == 0 ? readers[rank]->read(tiles.sum, n) : readers[rank]->add(tiles.sum, n);
      } else {
        add_own(job, own, working, first, n, rank == 0, tiles);
      }
    }
    if (job.device_divisor != nullptr || job.divisor != 1) {
      codec::divide(working, tiles.sum, divisor, n);
    }
    if (writer) {
      writer->write(tiles.sum, job.owner_residual == nullptr ? nullptr : job.owner_residual + first, n);
    } else {
      result.store(first, n, tiles.sum);
      job.call.status->nonfinite |= result.finite_outputs(first, n) ? 0U : 1U;
    }
  });
  if (writer && writer->finish()) {
    job.call.status->nonfinite = 1;
  }
}

}  // namespace

void run_reduce(const kernels::ReduceJob& jobs) {
  kernels::ReduceJob job = jobs;
  const std::vector<std::byte> own = array_of(job.own_pieces, job.count, job.own_dtype);
  std::vector<std::byte> result = array_of(job.result_pieces, job.count, job.result_dtype);
  job.own = job.own_pieces.count != 0 ? own.data() : job.own;
  job.result = job.result_pieces.count != 0 ? result.data() : job.result;
  reduce_arrays(job);
  copy_pieces(job.result_pieces, job.count, job.result_dtype, result.data(), false);
}

void run_fold(float* residual, double factor, void* values, DType dtype, std::uint64_t count) {
  const Working working = dtype == DType::f64 ? Working::f64 : Working::f32;
  const TensorList list = list_of(values, values, dtype, working, count);
  Tiles tiles;
  for_each_tile(count, [&](std::uint64_t first, std::uint32_t n) {
    void* tile = list.target(first, n, tiles.sum);
    const void* loaded = list.load(first, n, tiles.sum);
    if (loaded != tile) {
      std::memmove(tile, loaded, n * sizeof(float));
    }
    fold_working(residual + first, factor, working, tile, n);
    list.store(first, n, tile);
  });
}

void run_measure_scale(const float* scale, std::uint64_t count, std::uint8_t* powers) {
  codec::Preconditioner preconditioner;
  preconditioner.append(scale, count);
  std::vector<float> reciprocals(codec::kTileElements);
  for_each_tile(count, [&](std::uint64_t first, std::uint32_t n) {
    preconditioner.load_reciprocals(first, n, reciprocals.data());
    for (std::uint32_t i = 0; i < n; ++i) {
      powers[first + i] = static_cast<std::uint8_t>(std::ilogb(reciprocals[i]));
    }
  });
}

void run_rescale(const kernels::RescaleJob& job) {
  const TensorList in = list_of(job.from, nullptr, job.from_dtype, Working::f32, job.count);
  const TensorList out = list_of(nullptr, job.to, job.to_dtype, Working::f32, job.count);
  Tiles tiles;
  for_each_tile(job.count, [&](std::uint64_t first, std::uint32_t n) {
    const void* tile = in.load(first, n, tiles.input);
    if (job.factor != 1) {
      codec::multiply(Working::f32, tile, job.factor, tiles.input, n);
    } else if (tile != tiles.input) {
      std::memcpy(tiles.input, tile, n * sizeof(float));
    }
    auto* values = reinterpret_cast<float*>(tiles.input);
    for (std::uint32_t i = 0; i < n; ++i) {
      const int power = job.powers[first + i];
      values[i] *= std::ldexp(1.0F, job.divides ? power : -power);
    }
    out.store(first, n, values);
    if (job.status != nullptr && element_bytes(job.to_dtype) < sizeof(float)) {
      job.status->nonfinite |= out.finite_outputs(first, n) ? 0U : 1U;
    }
  });
}

void run_hash(const void* elements, std::uint64_t count, std::uint32_t* sums) {
  for (std::uint64_t i = 0; i < count; ++i) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, static_cast<const std::byte*>(elements) + i * sizeof bits, sizeof bits);
    sums[0] += kernels::hash_word(bits, i, 0);
    sums[1] += kernels::hash_word(bits, i, 1);
  }
}

void run_convert(const void* from, DType from_dtype, void* to, DType to_dtype, std::uint64_t count, double factor,
                 double divisor) {
  const Working working = from_dtype == DType::f64 && to_dtype == DType::f64 ? Working::f64 : Working::f32;
  const std::size_t element = working == Working::f64 ? sizeof(double) : sizeof(float);
  const TensorList in = list_of(from, nullptr, from_dtype, working, count);
  const TensorList out = list_of(nullptr, to, to_dtype, working, count);
  Tiles tiles;
  for_each_tile(count, [&](std::uint64_t first, std::uint32_t n) {
    const void* tile = in.load(first, n, tiles.input);
    if (factor != 1) {
      codec::multiply(working, tile, factor, tiles.input, n);
    } else if (tile != tiles.input) {
      std::memcpy(tiles.input, tile, n * element);
    }
    if (divisor != 1) {
      codec::divide(working, tiles.input, divisor, n);
    }
    out.store(first, n, tiles.input);
  });
}

}  // namespace gradwire::test
