"""moeloom.mesh: ranks, calls that differ, and what refuses mpi4py's communicators."""

import importlib.util
import unittest
from concurrent.futures import ThreadPoolExecutor

from ranks import LAYER, on_ranks, succeeds
from support import python


class Mesh(unittest.TestCase):
    def test_ranks_of_a_mesh(self):
        out = succeeds(4, """
            import copy, gc, pickle, sys, threading
            import moeloom

            def refused(kind, call, *words):
                try:
                    call()
                except kind as error:
                    assert all(word in str(error) for word in words), error
                else:
                    raise AssertionError(f"no {kind.__name__}")

            refused(TypeError, lambda: moeloom.mesh(ep="2"), "ep is '2'")
            refused(TypeError, lambda: moeloom.mesh(comm=7), "comm is 7", "mpi4py")
            refused(moeloom.ConfigError, lambda: moeloom.mesh(timeout=-1), "timeout is -1.0")
            refused(moeloom.ConfigError, lambda: moeloom.mesh(ep=3), "ep = 3 does not divide the 4 ranks", "1, 2, 4")
            whole, mesh = moeloom.mesh(), moeloom.mesh(ep=2)
            assert (whole.ep, whole.dp, whole.dp_rank) == (1, 4, whole.rank)
            assert (mesh.size, mesh.ep, mesh.dp) == (4, 2, 2)
            assert (mesh.dp_rank, mesh.ep_rank) == divmod(mesh.rank, 2)
            assert mesh.experts_of(5) == [(0, 3), (3, 2)][mesh.ep_rank]
            assert mesh.gather("x" * mesh.rank) == ["", "x", "xx", "xxx"]
            assert copy.deepcopy({"mesh": mesh})["mesh"] is mesh
            refused(TypeError, lambda: pickle.dumps(mesh), "cannot be pickled")
            whole.barrier()
            whole.close()
            refused(moeloom.SpentError, whole.barrier, "the mesh is closed")
            refused(moeloom.SpentError, lambda: whole.ep_row.experts_of(4), "the mesh is closed")
            whole.close()
            with moeloom.mesh(ep=4) as all_of_them:
                all_of_them.barrier()
                assert sys.excepthook is not sys.__excepthook__
            mesh.close()
            moeloom.mesh(ep=2)
            gc.collect()
            for thread in threading.enumerate():
                assert thread.name != "moeloom-watch" or thread.join(60) is None and not thread.is_alive()
            assert sys.excepthook is sys.__excepthook__
            print("done")
        """)
        self.assertEqual(out.count("done"), 4)

    def test_calls_that_differ_are_told(self):
        done = on_ranks(3, LAYER + """
def told(call, others_call, *words):
    mesh = moeloom.mesh(ep=3, timeout=60)
    first, second = layer(mesh, 1), layer(mesh, 2)
    trips = [first.forward(x, topk_idx, topk_weights)[1] for _ in range(2)]
    trip = trips[0]
    unnumbered = [ops.Experts(mesh, 5, first.gate_up, first.down) for _ in range(2)]
    calls = {"forward": lambda: first.forward(x, topk_idx, topk_weights), "backward": lambda: first.backward(trip, x),
             "another layer": lambda: second.forward(x, topk_idx, topk_weights), "barrier": mesh.barrier,
             "backward of the second": lambda: first.backward(trips[1], x),
             "of no number": lambda: unnumbered[0].forward(x, topk_idx, topk_weights),
             "another of none": lambda: unnumbered[1].forward(x, topk_idx, topk_weights)}
    try:
        calls[others_call if mesh.rank == 1 else call]()
    except moeloom.MpiError as error:
        assert all(word in str(error) for word in words), error
    else:
        raise AssertionError(f"{call} and {others_call} met")

told("forward", "backward", "ranks 0,2 are in the forward of layer 1 (call", "rank 1 is in the backward of layer 1 (")
told("forward", "another layer", "ranks 0,2 are in the forward of layer 1", "rank 1 is in the forward of layer 2")
told("backward", "barrier", "ranks 0,2 are in the backward of layer 1", "rank 1 is in a barrier")
told("barrier", "forward", "ranks 0,2 are in a barrier", "rank 1 is in the forward of layer 1", "as many forwards")
told("backward", "backward of the second", "ranks 0,2 are in the backward of layer 1 of forward 1 (call",
     "rank 1 is in the backward of layer 1 of forward 2 (call")
told("of no number", "another of none", "ranks 0,2 are in the forward of layer 2 (",
     "rank 1 is in the forward of layer 3 (")
print("told", flush=True)
""")
        self.assertEqual(done.out.count("told"), 3, done.text)
        self.assertNotEqual(done.code, 0, done.text)  # nor does a job end well after it

    def test_how_rows_travel_is_told_and_may_be_asked_for(self):
        out = succeeds(2, LAYER + """
mesh = moeloom.mesh(ep=2)
few = layer(mesh)._experts
ys = []
for number, (words, begin) in enumerate([
        ({}, "alltoall: 48 bytes a pair of ranks are below 4096"),
        ({"DISPATCHER": "shared"}, "shared: dispatcher = shared"),
        ({"DISPATCHER": "alltoall", "OVERLAP": "2"}, "alltoall in 2 chunks: dispatcher = alltoall; overlap chunks = 2"),
        ({"PRETEND_NODES": "2", "OVERLAP": "off"}, "the 2 ranks of ep lie on 2 nodes")]):
    for name in ("DISPATCHER", "OVERLAP", "PRETEND_NODES"):
        os.environ.pop("MOELOOM_" + name, None)
    os.environ.update({"MOELOOM_" + name: word for name, word in words.items()})
    experts = layer(mesh, 10 + number)
    ys.append(experts.forward(x, topk_idx, topk_weights)[0])
    assert begin in experts._experts.reason, experts._experts.reason
assert all((y == ys[0]).all() for y in ys)
for name, word in (("DISPATCHER", "fast"), ("OVERLAP", "0"), ("PRETEND_NODES", "x")):
    os.environ["MOELOOM_" + name] = word
    try:
        layer(mesh, 9)
    except moeloom.ConfigError as error:
        assert f"MOELOOM_{name} = {word}; valid: " in str(error), error
        del os.environ["MOELOOM_" + name]
        print("refused")
""")
        self.assertEqual(out.count("refused"), 6)

    def test_a_process_alone(self):
        code = "import moeloom; mesh = moeloom.mesh(); mesh.barrier(); print(mesh); moeloom.mesh(ep=2)"
        with self.assertRaisesRegex(AssertionError, "ep = 2 does not divide the 1 ranks"):
            python(code)
        self.assertEqual(python(code.replace("; moeloom.mesh(ep=2)", "")),
                         "Mesh(rank 0 of 1, ep 0 of 1, dp 0 of 1)")


@unittest.skipUnless(importlib.util.find_spec("mpi4py"), "python3-mpi4py not installed")
class Mpi4py(unittest.TestCase):
    def test_its_communicators_are_taken(self):
        out = succeeds(3, """
            from mpi4py import MPI
            import moeloom
            world = moeloom.mesh(ep=3)
            assert (world.rank, world.size) == (MPI.COMM_WORLD.rank, 3)
            pair = MPI.COMM_WORLD.Split(int(world.rank == 0), -world.rank)
            mesh = moeloom.mesh(ep=pair.size, comm=pair)
            assert (mesh.rank, mesh.size) == (pair.rank, pair.size)
            mesh.barrier()
            pair.Free()
            mesh.barrier()
            try:
                moeloom.mesh(comm=MPI.COMM_NULL)
            except moeloom.ConfigError as error:
                assert "COMM_NULL" in str(error), error
                print("done")
        """)
        self.assertEqual(out.count("done"), 3)

    def test_threads_of_mpi_are_those_that_the_library_needs(self):
        code = """
            import sys, threading
            import mpi4py
            mpi4py.rc.thread_level = sys.argv[1]
            from mpi4py import MPI
            import moeloom
            try:
                mesh = moeloom.mesh(ep=2)
            except moeloom.MpiError as error:
                print("refused", error)
                sys.exit()
            def call():
                try:
                    mesh.barrier()
                    print("went")
                except moeloom.MpiError as error:
                    print("refused", error)
            call()
            thread = threading.Thread(target=call)
            thread.start()
            thread.join()
        """
        with ThreadPoolExecutor(3) as pool:
            levels = ("single", "funneled", "serialized")
            single, funneled, serialized = pool.map(lambda level: succeeds(2, code, level), levels)
        self.assertEqual(single.count("MPI_THREAD_SINGLE"), 2, single)
        self.assertEqual((funneled.count("went"), funneled.count("main thread alone")), (2, 2), funneled)
        self.assertEqual(serialized.count("went"), 4, serialized)

    def test_another_mpi_is_refused_with_both_texts(self):
        out = python("""
import moeloom
from mpi4py import MPI
class Another:
    Comm, Intracomm, COMM_WORLD = MPI.Comm, MPI.Intracomm, None
    Is_initialized, Is_finalized = staticmethod(lambda: True), staticmethod(lambda: False)
    Get_library_version = staticmethod(lambda: "Another MPI 1.0\\nand its flags\\0")
import sys
sys.modules["mpi4py.MPI"] = Another
try:
    moeloom.mesh()
except moeloom.MpiError as error:
    print(error)
""")
        self.assertIn('mpi4py has "Another MPI 1.0 and its flags"', out)
        self.assertRegex(out, r'libmoeloom_c.so\S* has "\w+')


if __name__ == "__main__":
    unittest.main()
