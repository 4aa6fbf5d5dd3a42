# The scene that prepage-eval shows in Blender: a function of its seed. Executed by `blender --python`.
import bpy
import random

SEED = 1
OBJECTS = 80
MESHES = 20
READY = "ready.blend"

preferences = bpy.context.preferences
preferences.view.show_splash = False
preferences.view.show_tooltips = False
preferences.view.smooth_view = 0
preferences.system.viewport_aa = "OFF"
preferences.filepaths.use_auto_save_temporary_files = False
preferences.inputs.use_emulate_numpad = True
preferences.use_preferences_save = False

draw = random.Random(SEED)
for item in list(bpy.data.objects):
    bpy.data.objects.remove(item)
bpy.ops.mesh.primitive_monkey_add()
model = bpy.context.object
model.modifiers.new("smooth", "SUBSURF").levels = 2
bpy.ops.object.modifier_apply(modifier="smooth")

meshes = []
for i in range(MESHES):
    mesh = model.data.copy()
    material = bpy.data.materials.new(f"material {i}")
    material.diffuse_color = (draw.random(), draw.random(), draw.random(), 1)
    mesh.materials.append(material)
    meshes.append(mesh)
bpy.data.objects.remove(model)
for i in range(OBJECTS):
    item = bpy.data.objects.new(f"object {i}", meshes[i % MESHES])
    item.location = [draw.uniform(-9, 9), draw.uniform(-9, 9), draw.uniform(-6, 6)]
    item.rotation_euler = [draw.uniform(0, 6) for _ in range(3)]
    bpy.context.collection.objects.link(item)


def show():
    window = bpy.context.window_manager.windows[0]
    area = next(a for a in window.screen.areas if a.type == "VIEW_3D")
    region = next(r for r in area.regions if r.type == "WINDOW")
    area.spaces.active.shading.color_type = "MATERIAL"
    with bpy.context.temp_override(window=window, area=area, region=region):
        bpy.ops.view3d.view_all()
        # Keys go to what lies under the pointer: the view shall, wherever it rests.
        bpy.ops.screen.screen_full_area(use_hide_panels=True)
    # The window's title is the file's name.
    bpy.ops.wm.save_as_mainfile(filepath=READY, check_existing=False)


# The window is there only after this script.
bpy.app.timers.register(show, first_interval=1.0)
