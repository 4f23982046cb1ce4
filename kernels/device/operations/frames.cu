// The operations that make frames and decode them.
#include "kernels/device/decode.hpp"
#include "kernels/device/encode.hpp"
#include "kernels/device/frame_headers.hpp"
#include "kernels/device/operations/dispatch.hpp"
#include "kernels/device/selected.hpp"
#include "kernels/device/verbatim.hpp"

namespace gradwire::kernels {

void open_headers(std::span<const HeaderJob> jobs, const KernelQueue& queue) {
  for (std::size_t done = 0; done < jobs.size();) {
    HeaderList list;
    std::uint32_t frames = 0;
    for (; list.jobs < HeaderList::kMost && done < jobs.size(); ++done) {
      list.job[list.jobs++] = jobs[done];
      frames += jobs[done].series.frames;
    }
    constexpr std::uint32_t kOfBlock = simt::kThreads / kHeaderWords;
    simt::launch("open_frames", open_frames, blocks_for((frames + kOfBlock - 1) / kOfBlock, queue), queue.stream, list);
  }
}

void encode(const EncodeJob& job, const KernelQueue& queue) {
  const FrameCodec& codec = job.call.codec;
  check_working(codec, job.values_dtype);
  if (!job.opened) {
    const HeaderJob headers{job.call, job.frame, job.series};
    open_headers({&headers, 1}, queue);
  }
  if (job.frame.count == 0) {
    return;
  }
  const std::uint32_t blocks = blocks_for(series_tiles(job.frame, job.series), queue);
  if (codec.k != 0) {
    with_any_selected(codec, [&]<class K>(Type<K>) {
      launch_over(job, job.pieces.count != 0, [&]<class Job>(const Job& over) {
        simt::launch("encode_selected", encode_selected<K, Job>, blocks, queue.stream, over);
      });
    });
  } else if (verbatim(codec, job.values_dtype) && (job.values != nullptr || job.pieces.count != 0) && job.factor == 1 &&
             job.residual == nullptr) {
    simt::launch("encode_verbatim", encode_verbatim, blocks, queue.stream, job);
  } else {
    with_any_codec(codec, [&]<class C>(Type<C>) {
      launch_over(job, job.pieces.count != 0, [&]<class Job>(const Job& over) {
        simt::launch("encode_frame", encode_frame<C, Job>, blocks, queue.stream, over);
      });
    });
  }
}

void decode(const DecodeJob& job, const KernelQueue& queue) {
  const FrameCodec& codec = job.call.codec;
  check_working(codec, job.values_dtype);
  const std::uint32_t blocks = blocks_for(series_tiles(job.frame, job.series), queue);
  if (codec.k != 0) {
    works_in_f64(codec) ? simt::launch("decode_selected", decode_selected<double>, blocks, queue.stream, job)
                        : simt::launch("decode_selected", decode_selected<float>, blocks, queue.stream, job);
  } else if (verbatim(codec, job.values_dtype) && !job.add) {
    simt::launch("decode_verbatim", decode_verbatim, blocks, queue.stream, job);
  } else {
    with_any_codec(codec, [&]<class C>(Type<C>) {
      launch_over(job, job.pieces.count != 0, [&]<class Job>(const Job& over) {
        simt::launch("decode_frame", decode_frame<C, Job>, blocks, queue.stream, over);
      });
    });
  }
}

void load_frame_kernels() {
  simt::load_kernel("open_frames", open_frames);
  simt::load_kernel("encode_verbatim", encode_verbatim);
  simt::load_kernel("decode_verbatim", decode_verbatim);
  for_all_codecs([](const FrameCodec& codec) {
    with_any_codec(codec, []<class C>(Type<C>) {
      simt::load_kernel("encode_frame", encode_frame<C, EncodeJob>);
      simt::load_kernel("encode_frame", encode_frame<C, InPieces<EncodeJob>>);
      simt::load_kernel("decode_frame", decode_frame<C, DecodeJob>);
      simt::load_kernel("decode_frame", decode_frame<C, InPieces<DecodeJob>>);
    });
    with_any_selected(codec, []<class K>(Type<K>) {
      simt::load_kernel("encode_selected", encode_selected<K, EncodeJob>);
      simt::load_kernel("encode_selected", encode_selected<K, InPieces<EncodeJob>>);
    });
  });
  simt::load_kernel("decode_selected", decode_selected<float>);
  simt::load_kernel("decode_selected", decode_selected<double>);
}

}  // namespace gradwire::kernels
