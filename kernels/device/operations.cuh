// The functions of kernels/device/operations.hpp, which choose the kernel for a job. One unit of the CUDA library and
// one of the tests' emulated library include this file.
#include "kernels/device/elementwise.hpp"
#include "kernels/device/operations.hpp"
#include "kernels/device/reduce.hpp"
#include "kernels/device/reduce_mixed.hpp"
#include "kernels/device/rescale.hpp"
#include "kernels/device/selected.hpp"
#include "kernels/device/verbatim.hpp"

namespace gradwire::kernels {
namespace {

[[noreturn]] void unknown_codec(const FrameCodec& codec) {
  throw Error(ErrorCode::unsupported, "no kernel for codec " + std::to_string(codec.id) + " with k " +
                                          std::to_string(codec.k) + " over dtype " +
                                          std::to_string(static_cast<int>(codec.dtype)));
}

// Calls body(Type<the type of elements on their way between two dtypes>).
template <class Body>
void with_element(DType from, DType to, Body body) {
  if (from == DType::f64 && to == DType::f64) {
    return body(Type<double>());
  }
  if (from == to && half_width(from)) {
    return body(Type<std::uint16_t>());
  }
  return body(Type<float>());
}

std::uint32_t g_most_blocks = simt::kMostBlocks;

std::uint32_t blocks_for(std::uint64_t tiles) {
  return tiles < g_most_blocks ? static_cast<std::uint32_t>(tiles) : g_most_blocks;
}

}  // namespace

namespace {

// Checks that f64 working values lie in f64 arrays.
void check_working(const FrameCodec& codec, DType values) {
  if (works_in_f64(codec) && values != DType::f64) {
    unknown_codec({codec.id, codec.k, values});
  }
}

// Whether elements go into the frame, or come out of it, with their bytes untouched.
bool verbatim(const FrameCodec& codec, DType values) {
  return codec.id == kExactId && codec.k == 0 && codec.dtype == values && half_width(values);
}

// Calls body(Type<codec or selected coder>) with the codec's working type.
template <class Body>
void with_any_codec(const FrameCodec& codec, const Body& body) {
  if (!(works_in_f64(codec) ? host_with_codec<double>(codec, body) : host_with_codec<float>(codec, body))) {
    unknown_codec(codec);
  }
}
template <class Body>
void with_any_selected(const FrameCodec& codec, const Body& body) {
  if (!(works_in_f64(codec) ? host_with_selected<double>(codec, body) : host_with_selected<float>(codec, body))) {
    unknown_codec(codec);
  }
}

}  // namespace

void open_headers(std::span<const HeaderJob> jobs, void* stream) {
  for (std::size_t done = 0; done < jobs.size();) {
    HeaderList list;
    std::uint32_t frames = 0;
    for (; list.jobs < HeaderList::kMost && done < jobs.size(); ++done) {
      list.job[list.jobs++] = jobs[done];
      frames += jobs[done].series.frames;
    }
    constexpr std::uint32_t kOfBlock = simt::kThreads / kHeaderWords;
    simt::launch("open_frames", open_frames, blocks_for((frames + kOfBlock - 1) / kOfBlock), stream, list);
  }
}

void encode(const EncodeJob& job, void* stream) {
  const FrameCodec& codec = job.call.codec;
  check_working(codec, job.values_dtype);
  if (!job.opened) {
    const HeaderJob headers{job.call, job.frame, job.series};
    open_headers({&headers, 1}, stream);
  }
  if (job.frame.count == 0) {
    return;
  }
  const std::uint32_t blocks = blocks_for(series_tiles(job.frame, job.series));
  if (codec.k != 0) {
    with_any_selected(
        codec, [&]<class K>(Type<K>) { simt::launch("encode_selected", encode_selected<K>, blocks, stream, job); });
  } else if (verbatim(codec, job.values_dtype) && job.values != nullptr && job.factor == 1 && job.residual == nullptr) {
    simt::launch("encode_verbatim", encode_verbatim, blocks, stream, job);
  } else {
    with_any_codec(codec,
                   [&]<class C>(Type<C>) { simt::launch("encode_frame", encode_frame<C>, blocks, stream, job); });
  }
}

void decode(const DecodeJob& job, void* stream) {
  const FrameCodec& codec = job.call.codec;
  check_working(codec, job.values_dtype);
  const std::uint32_t blocks = blocks_for(series_tiles(job.frame, job.series));
  if (codec.k != 0) {
    works_in_f64(codec) ? simt::launch("decode_selected", decode_selected<double>, blocks, stream, job)
                        : simt::launch("decode_selected", decode_selected<float>, blocks, stream, job);
  } else if (verbatim(codec, job.values_dtype) && !job.add) {
    simt::launch("decode_verbatim", decode_verbatim, blocks, stream, job);
  } else {
    with_any_codec(codec,
                   [&]<class C>(Type<C>) { simt::launch("decode_frame", decode_frame<C>, blocks, stream, job); });
  }
}

namespace {

template <int kMost>
InputList<kMost> input_list(const ReduceJob& job) {
  InputList<kMost> list{};
  for (int rank = 0; rank < job.ranks; ++rank) {
    if (job.inputs[rank].bytes == nullptr) {
      list.own = rank;
    } else {
      list.frame[list.frames++] = job.inputs[rank].bytes;
    }
  }
  return list;
}

bool same_codec(const FrameCodec& a, const FrameCodec& b) { return a.id == b.id && a.k == b.k && a.dtype == b.dtype; }

void check_reduce(const ReduceJob& job) {
  if (job.ranks < 1 || job.ranks > kMaxReduceInputs) {
    throw Error(ErrorCode::unsupported, "a sum over " + std::to_string(job.ranks) + " ranks on a device: from 1 to " +
                                            std::to_string(kMaxReduceInputs) + " can be");
  }
  if (job.out != nullptr && works_in_f64(job.call.codec) != works_in_f64(job.second)) {
    unknown_codec(job.second);
  }
  check_working(job.call.codec, job.own == nullptr ? DType::f64 : job.own_dtype);
  check_working(job.call.codec, job.out != nullptr ? DType::f64 : job.result_dtype);
}

}  // namespace

// Each block of a sum checks the headers of all frames before it begins, so their number is limited. One block does it
// where there are no tiles.
constexpr std::uint32_t kMostSumBlocks = 1U << 12;

void reduce(const ReduceJob& job, void* stream) {
  check_reduce(job);
  if (job.out != nullptr && !job.opened) {
    const HeaderJob header = header_of(job);
    open_headers({&header, 1}, stream);
  }
  const std::uint32_t tiles = tiles_of(job.count);
  const std::uint32_t blocks = tiles == 0 ? 1 : blocks_for(tiles < kMostSumBlocks ? tiles : kMostSumBlocks);
  const bool one_codec = job.call.codec.k == 0 && (job.out == nullptr || same_codec(job.call.codec, job.second));
  if (one_codec && job.ranks <= kFewInputs) {
    with_any_codec(job.call.codec, [&]<class C>(Type<C>) {
      simt::launch("reduce_frames", reduce_frames<C>, blocks, stream, job, input_list<kFewInputs>(job));
    });
  } else {
    const auto nothing = [](auto) {};
    job.call.codec.k != 0 ? with_any_selected(job.call.codec, nothing) : with_any_codec(job.call.codec, nothing);
    if (job.out != nullptr) {
      job.second.k != 0 ? with_any_selected(job.second, nothing) : with_any_codec(job.second, nothing);
    }
    const auto inputs = input_list<kMaxReduceInputs>(job);
    const bool selected = job.call.codec.k != 0 && (job.out == nullptr || job.second.k != 0);
    const auto kernel = works_in_f64(job.call.codec)
                            ? (selected ? reduce_mixed<double, true> : reduce_mixed<double, false>)
                            : (selected ? reduce_mixed<float, true> : reduce_mixed<float, false>);
    simt::launch("reduce_mixed", kernel, blocks, stream, job, inputs);
  }
}

namespace {

std::uint64_t strips_in(std::uint64_t count) { return count / kStrip + (count % kStrip != 0 ? 1 : 0); }

// For kernels that give a strip to each warp.
std::uint32_t blocks_for_strips(std::uint64_t strips) { return blocks_for((strips + simt::kWarps - 1) / simt::kWarps); }

void copy_all(const char* name, std::span<const CopyPiece> pieces, DType tensors, void* run, DType run_dtype,
              bool gather, void* stream) {
  PieceList list;
  list.tensors = tensors;
  list.run_dtype = run_dtype;
  list.run = run;
  for (std::size_t done = 0; done < pieces.size();) {
    list.strips_before[0] = 0;
    for (list.count = 0; list.count < PieceList::kMost && done < pieces.size(); ++done) {
      if (pieces[done].count != 0 && (gather || pieces[done].tensor != nullptr)) {
        list.piece[list.count] = pieces[done];
        list.strips_before[list.count + 1] = list.strips_before[list.count] + strips_in(pieces[done].count);
        ++list.count;
      }
    }
    if (list.count == 0) {
      continue;
    }
    const std::uint32_t blocks = blocks_for_strips(list.strips_before[list.count]);
    with_element(tensors, run_dtype, [&]<class Value>(Type<Value>) {
      gather ? simt::launch(name, copy_pieces<Value, true>, blocks, stream, list)
             : simt::launch(name, copy_pieces<Value, false>, blocks, stream, list);
    });
  }
}

}  // namespace

void fold(float* residual, double factor, const double* device_factor, void* values, DType dtype, std::uint64_t count,
          void* stream) {
  if (count == 0) {
    return;
  }
  const FoldJob job{residual, {factor, device_factor}, values, dtype, count};
  const std::uint32_t blocks = blocks_for_strips(strips_in(count));
  dtype == DType::f64 ? simt::launch("fold", fold_residual<double>, blocks, stream, job)
                      : simt::launch("fold", fold_residual<float>, blocks, stream, job);
}

void convert(const void* from, DType from_dtype, void* to, DType to_dtype, std::uint64_t count, double factor,
             const double* device_factor, double divisor, const double* device_divisor, void* stream) {
  if (count == 0) {
    return;
  }
  const ConvertJob job{from, from_dtype, to, to_dtype, count, {factor, device_factor}, {divisor, device_divisor}};
  const std::uint32_t blocks = blocks_for_strips(strips_in(count));
  const bool wide = from_dtype == DType::f64 && to_dtype == DType::f64;
  wide ? simt::launch("convert", convert_elements<double>, blocks, stream, job)
       : simt::launch("convert", convert_elements<float>, blocks, stream, job);
}

void measure_scale(const float* scale, std::uint64_t count, std::uint8_t* powers, void* stream) {
  if (count != 0) {
    const ScaleJob job{scale, count, powers};
    simt::launch("measure_scale", measure_tiles, blocks_for(scale_tiles(count)), stream, job);
  }
}

void rescale(const RescaleJob& job, void* stream) {
  if (job.count != 0) {
    simt::launch("rescale", rescale_elements, blocks_for_strips(strips_in(job.count)), stream, job);
  }
}

void hash(const void* elements, std::uint64_t count, std::uint32_t* sums, void* stream) {
  if (count != 0) {
    const HashJob job{static_cast<const std::uint8_t*>(elements), count, sums};
    simt::launch("hash", hash_elements, blocks_for_strips(strips_in(count)), stream, job);
  }
}

void gather(std::span<const CopyPiece> pieces, DType tensors, void* run, DType run_dtype, void* stream) {
  copy_all("gather", pieces, tensors, run, run_dtype, true, stream);
}

void scatter(std::span<const CopyPiece> pieces, DType tensors, const void* run, DType run_dtype, void* stream) {
  copy_all("scatter", pieces, tensors, const_cast<void*>(run), run_dtype, false, stream);
}

void sum_weights(std::span<const double* const> weights, double own, double* totals, void* stream) {
  WeightList list;
  list.continues = false;
  std::size_t done = 0;
  do {
    for (list.count = 0; list.count < WeightList::kMost && done < weights.size(); ++done) {
      list.weight[list.count++] = weights[done];
    }
    list.ends = done == weights.size();
    simt::launch("sum_weights", add_weights, 1, stream, list, own, totals);
    list.continues = true;
  } while (done < weights.size());
}

void store_weight(double weight, double* to, void* stream) {
  simt::launch("store_weight", store_double, 1, stream, weight, to);
}

void cap_blocks(std::uint32_t most) { g_most_blocks = most == 0 ? simt::kMostBlocks : most; }

void load_kernels() {
  simt::load_kernel("open_frames", open_frames);
  simt::load_kernel("encode_verbatim", encode_verbatim);
  simt::load_kernel("decode_verbatim", decode_verbatim);
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::f64}) {
    for (std::uint8_t id = kExactId; id < kCodecIds; ++id) {
      const FrameCodec codec{.id = id, .dtype = dtype};
      with_any_codec(codec, []<class C>(Type<C>) {
        simt::load_kernel("encode_frame", encode_frame<C>);
        simt::load_kernel("decode_frame", decode_frame<C>);
        simt::load_kernel("reduce_frames", reduce_frames<C>);
      });
      with_any_selected(codec, []<class K>(Type<K>) { simt::load_kernel("encode_selected", encode_selected<K>); });
    }
  }
  simt::load_kernel("decode_selected", decode_selected<float>);
  simt::load_kernel("decode_selected", decode_selected<double>);
  simt::load_kernel("reduce_mixed", reduce_mixed<float, false>);
  simt::load_kernel("reduce_mixed", reduce_mixed<float, true>);
  simt::load_kernel("reduce_mixed", reduce_mixed<double, false>);
  simt::load_kernel("reduce_mixed", reduce_mixed<double, true>);
  const auto load_copies = []<class Value>(Type<Value>) {
    simt::load_kernel("gather", copy_pieces<Value, true>);
    simt::load_kernel("scatter", copy_pieces<Value, false>);
  };
  load_copies(Type<float>());
  load_copies(Type<double>());
  load_copies(Type<std::uint16_t>());
  simt::load_kernel("fold", fold_residual<float>);
  simt::load_kernel("fold", fold_residual<double>);
  simt::load_kernel("convert", convert_elements<float>);
  simt::load_kernel("convert", convert_elements<double>);
  simt::load_kernel("measure_scale", measure_tiles);
  simt::load_kernel("rescale", rescale_elements);
  simt::load_kernel("hash", hash_elements);
  simt::load_kernel("sum_weights", add_weights);
  simt::load_kernel("store_weight", store_double);
  simt::load_kernel("advance_step", advance_word);
}

void advance_step(std::uint32_t* step, void* stream) { simt::launch("advance_step", advance_word, 1, stream, step); }

}  // namespace gradwire::kernels
