"""The vLLM engine: linked chunks inside vLLM, through its plug-in points alone.

vLLM is imported by the modules of this folder and by nothing else, so everything else runs without it.
"""
