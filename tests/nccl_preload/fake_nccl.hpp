// A libnccl without a GPU: communicators are made, counted and freed; collectives are counted and move no data. What
// comes behind what is known: as in NCCL, a call comes behind all earlier ones of its stream and of its communicator.
#pragma once

extern "C" {
/// Returns how often pncclX ran in this process; `name` is "ncclX".
long fake_nccl_calls(const char* name);
/// Prints all calls since the last time in their order, sums and sends with their counts.
void fake_nccl_print_order();
/// Returns the number of communicators that were made and not yet freed.
int fake_nccl_alive();
/// The next Destroy or Abort fails and frees nothing.
void fake_nccl_refuse_end();
/// The next Send fails.
void fake_nccl_refuse_send();
/// The next Split fails.
void fake_nccl_refuse_split();
/// Returns an event of the stream.
int fake_nccl_record(void* stream);
/// Later calls on the stream come behind the event.
void fake_nccl_wait(void* stream, int event);
/// Enqueues a kernel, which counts as a call of this name.
void fake_nccl_launch(const char* kernel, void* stream);
/// Returns how many calls of pncclX with X = `earlier`, since the last time that the order was printed, the latest call
/// of `later` comes behind.
int fake_nccl_behind(const char* later, const char* earlier);
}
