"""Handles where they do not belong any more: after MPI's end, beside a call of another thread, with another mesh."""

import importlib.util
import unittest
from concurrent.futures import ThreadPoolExecutor

from ranks import LAYER, succeeds

REFUSED = LAYER + """
from moeloom._library import library
mesh, other = moeloom.mesh(ep=2), moeloom.mesh(ep=2)
experts, others = layer(mesh, 3), layer(other, 3)
odd = mesh.rank == 1
forward = lambda: experts.forward(x, topk_idx, topk_weights)

def refused(kind, call, *words):
    try:
        call()
    except kind as error:
        assert all(word in str(error) for word in words), error
    else:
        raise AssertionError(f"accepted; expected {words}")

COMES = os.path.join(os.path.dirname(__file__), "comes")
def comes():
    while not os.path.exists(COMES): time.sleep(0.01)

def until_in_a_call(thread, watch):
    while watch.now is None: time.sleep(0.01)
    seconds = lambda: time.clock_gettime(time.pthread_getcpuclockid(thread.ident))
    begun = seconds()  # longer than the way from here into the library takes
    while seconds() < begun + 0.02: time.sleep(0.01)
"""

PROGRAMS = {
    "another mesh": """
y, trip = forward()
refused(moeloom.ShapeError, lambda: others.backward(trip, x), "the trip is of other experts")
experts.backward(trip, x)
refused(moeloom.SpentError, lambda: experts.backward(trip, x), "called already")
""",
    # The even rank's thread waits in a call for the odd rank, which comes when it is told to.
    "another thread": """
y, trip = others.forward(x, topk_idx, topk_weights)
ended = []
def call():
    forward()
    ended.append(True)
if odd:
    comes()
    call()
else:
    thread = threading.Thread(target=call)
    thread.start()
    until_in_a_call(thread, mesh.world.watch)
    refused(moeloom.InUseError, mesh.close, "used by another thread")
    refused(moeloom.InUseError, other.barrier, "one thread at a time", "MPI_THREAD_MULTIPLE")
    refused(moeloom.InUseError, lambda: others.forward(x, topk_idx, topk_weights), "one thread at a time")
    refused(moeloom.InUseError, lambda: others.backward(trip, x), "one thread at a time")
    refused(moeloom.InUseError, library().ml_mpi_end, "one thread at a time")
    assert not ended
    open(COMES, "w").close()
    thread.join()
assert ended == [True]
others.backward(trip, x)
assert other.ep_row.passes.taken() == (1, 1)  # what was refused on one rank is none
other.barrier()
forward()
mesh.close()
refused(moeloom.SpentError, forward, "closed")
other.barrier()
""",
    # Where the garbage collector closes a mesh in a thread of its own or in a call, that call goes on, and buffers are
    # given back behind it.
    "the garbage collector": """
lib, released = library(), []
release = lib.ml_group_release
lib.ml_group_release = lambda group: (released.append(threading.get_ident()), release(group))
def call(world):
    world.barrier()
    refused(moeloom.SpentError, world.barrier, "closed")
    print("went")
world, watch, held = mesh.world, mesh.world.watch, [mesh, experts]
del mesh, experts
if odd:
    comes()
    world.barrier()
    world.call("a call of its own", held.clear)
    assert released == 3 * [threading.get_ident()], released
else:
    thread = threading.Thread(target=call, args=(world,))
    thread.start()
    until_in_a_call(thread, watch)
    held.clear()
    assert not watch._ends.is_set() and not released  # a call that goes on is watched
    open(COMES, "w").close()
    thread.join()
    assert released == 3 * [thread.ident], released
assert watch._ends.is_set()
other.close()
assert len(released) == 6
""",
    # The program's end still meets on the world of each, which keeps no rows.
    "closed meshes": """
many = [np.repeat(array, 100000, 0) for array in (x, topk_idx, topk_weights)]
in_use = []
for _ in range(4):
    with moeloom.mesh(ep=2) as again:
        layer(again, 3).forward(*many)
    kept = (line.split() for line in open("/proc/self/status") if line.startswith("RssShmem:"))
    in_use.append(sum(int(words[1]) for words in kept))
rows = many[0].nbytes // 1024
assert in_use[-1] < in_use[0] + rows, (in_use, rows)
""",
    "after MPI's end": """
y, trip = forward()
mpi4py.MPI.Finalize()
for call in (forward, lambda: experts.backward(trip, x), mesh.barrier, lambda: layer(mesh, 4), lambda: mesh.gather("")):
    refused(moeloom.MpiError, call, "MPI has ended")
refused(moeloom.MpiError, lambda: moeloom.mesh(ep=2), "MPI")
mesh.close()
""",
}


class Handles(unittest.TestCase):
    def test_are_refused(self):
        """Programs of two ranks, each of which ends well."""
        has_mpi4py = importlib.util.find_spec("mpi4py")
        with ThreadPoolExecutor(2) as pool:
            jobs = [pool.submit(succeeds, 2, ("import mpi4py.MPI\n" if "mpi4py" in code else "") + REFUSED + code +
                                '\nprint("done")', seconds=300)
                    for code in PROGRAMS.values() if has_mpi4py or "mpi4py" not in code]
            for job in jobs:
                self.assertEqual(job.result().count("done"), 2)


if __name__ == "__main__":
    unittest.main()
